"""A shorter log for a terminal: warnings, errors, and one line for each change that a person cares about.

A refused pod is among the warnings: the embedded scheduler has one for each reason.
"""

import logging

from hived_jobs import controller

CHANGES = frozenset(
    {
        "bound",
        "force bind",
        "victim asked to leave",
        "lazily preempted",
        "preemption cancelled",
        "node",
        "configuration in force",
        "kernels are plain Python, which is slow, until they are compiled beside the service",
        "kernels are compiled",
    }
)
"""Messages at INFO that are shown, beside those about jobs."""


class Brief(logging.Filter):
    """Lets changes and whatever is above INFO pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is worth a line."""
        is_change = record.name == controller.__name__ or record.getMessage() in CHANGES
        return record.levelno > logging.INFO or (record.levelno == logging.INFO and is_change)
