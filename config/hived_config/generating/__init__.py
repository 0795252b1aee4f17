"""Configurations from what is known of machines, and files kept up to date with machines that come and go."""
