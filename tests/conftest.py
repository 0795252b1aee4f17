"""Settings of all tests."""

from hypothesis import settings

# The same examples on every machine and in every run; a slow machine is no failure.
settings.register_profile("repeatable", deadline=None, derandomize=True, database=None)
settings.load_profile("repeatable")
