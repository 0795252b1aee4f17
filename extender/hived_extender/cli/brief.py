"""A shorter log for a terminal: warnings, errors, and one line for each change that a person cares about."""

import logging
from collections import OrderedDict

from hived_extender import decision_log, logs
from hived_extender.jobs import controller

CHANGES = frozenset(
    {
        "bound",
        "force bind",
        "victim asked to leave",
        "lazily preempted",
        "preemption cancelled",
        "node",
        "configuration in force",
    }
)
"""Messages at INFO that are shown."""

POD_LIMIT = 10_000
"""Pods of which is remembered why they were refused."""


class Brief(logging.Filter):
    """Lets changes pass, and each refusal of a pod once for as long as the reason is the same."""

    def __init__(self) -> None:
        super().__init__()
        self._refusals: OrderedDict[str, str] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is worth a line. Called under the handler's lock, or none: a line more does no harm."""
        if record.levelno > logging.INFO or record.name == controller.__name__:
            return True
        if record.name == decision_log.__name__:
            return self._is_new_refusal(record)
        return record.getMessage() in CHANGES

    def _is_new_refusal(self, record: logging.LogRecord) -> bool:
        fields = logs.fields_of(record)
        if fields.get("outcome") != "error":
            return False
        pod, reason = str(fields.get("pod")), str(fields.get("reason"))
        is_new = self._refusals.pop(pod, None) != reason
        self._refusals[pod] = reason
        if len(self._refusals) > POD_LIMIT:
            self._refusals.popitem(last=False)
        return is_new
