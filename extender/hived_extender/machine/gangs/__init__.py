"""Gangs: pods that start together."""
