"""Pods that start together."""
