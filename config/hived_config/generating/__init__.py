"""Generates configurations from facts about machines, and keeps files up to date as machines come and go."""
