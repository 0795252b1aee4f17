"""The scheduling service: the state, its lock, and every decision."""
