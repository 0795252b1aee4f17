"""Devices that hived cannot give away: missing on their node, or used by pods that hived has not placed."""
