"""Devices that cannot be had."""
