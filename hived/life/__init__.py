"""Allocation, release, eviction, failure and restart."""
