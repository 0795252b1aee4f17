"""A cluster in virtual time: traces run on the production code; see README.md."""
