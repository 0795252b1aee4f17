"""Functions that several subcommands of `hived config` share."""
