"""Cells are taken and given back: allocation, eviction, failure, restart."""
