"""The reference's choice of a place (`rules: hived`)."""
