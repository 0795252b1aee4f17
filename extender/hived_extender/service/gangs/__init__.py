"""Pods that start together: who they are, when they may, and how it is done."""
