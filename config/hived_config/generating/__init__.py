"""Configurations generated from facts about machines, and files kept up to date with machines that come and go."""
