"""Quotas as trees."""
