"""Quotas as trees: how much each tenant may use, and which virtual cluster backs it."""
