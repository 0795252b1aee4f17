"""Editing configuration files as text: all bytes that an edit does not mean stay."""
