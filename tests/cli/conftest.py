"""Fixtures that tests of commands about jobs share with those of jobs."""

from tests.jobs.conftest import write

__all__ = ["write"]
