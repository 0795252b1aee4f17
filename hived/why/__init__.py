"""Causes of a wait."""
