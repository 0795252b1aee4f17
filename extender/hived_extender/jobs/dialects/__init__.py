"""Gangs in the words of other schedulers."""
