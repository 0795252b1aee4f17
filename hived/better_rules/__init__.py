"""The better choice of a place (`rules: 2`)."""
