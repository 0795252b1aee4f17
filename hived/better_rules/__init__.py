"""Better placement (`rules: 2`)."""
