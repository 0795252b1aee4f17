"""Decisions written down, and repeated from that record."""
