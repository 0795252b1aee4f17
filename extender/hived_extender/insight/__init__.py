"""Why jobs wait, when they start, and what would help, on copies of the state."""
