"""Answers on copies of the state: why jobs wait, when they start, and what would help."""
