"""Placement as the reference does it (`rules: hived`)."""
