"""Readers of published traces and of what clusters print; see README.md."""
