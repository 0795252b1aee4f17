"""Complete searches for a place."""
