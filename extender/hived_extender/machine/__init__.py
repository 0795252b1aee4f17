"""The state, and every decision about pods."""
