"""Values that enter and leave the core."""
