"""The spending of a control plane and of our service: CPU of each process, and writes of each program by kind."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import msgspec

from tests.benchmarks.process import cpu_s
from tests.e2e.processes import Process

POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  resources: [{group: coordination.k8s.io}]
- level: Metadata
  verbs: [create, update, patch, delete]
"""
"""Of the API server's audit log: every write but those of Leases, which go on whatever pods do."""


class _Reference(msgspec.Struct):
    resource: str = ""
    subresource: str = ""


class _Status(msgspec.Struct):
    code: int = 0


class _Entry(msgspec.Struct, rename="camel"):
    verb: str
    user_agent: str = ""
    object_ref: _Reference = msgspec.field(default_factory=_Reference)
    response_status: _Status = msgspec.field(default_factory=_Status)


_decoder = msgspec.json.Decoder(_Entry)


class Spending:
    """CPU of some processes, by name, from the making of this object on."""

    def __init__(self, processes: Mapping[str, Process]) -> None:
        self._processes = dict(processes)
        self._began = {name: cpu_s(process.pid) for name, process in self._processes.items()}

    def cpu_s(self) -> dict[str, float]:
        """Seconds by process."""
        return {name: cpu_s(process.pid) - self._began[name] for name, process in self._processes.items()}


class Writes:
    """Writes that an API server has taken, by its audit log, from the making of this object on."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._start = log.stat().st_size

    def count(self) -> Counter[tuple[str, str]]:
        """How many of each (program, kind); a kind is a verb and what it wrote. Refused ones are marked."""
        found: Counter[tuple[str, str]] = Counter()
        with self._log.open("rb") as file:
            file.seek(self._start)
            for line in file:
                if line.endswith(b"\n"):
                    found[_read(line)] += 1
        return found


def _read(line: bytes) -> tuple[str, str]:
    entry = _decoder.decode(line)
    what = "/".join(filter(None, (entry.object_ref.resource, entry.object_ref.subresource)))
    code = entry.response_status.code
    return entry.user_agent.split("/")[0], f"{entry.verb} {what}" + (f" ({code})" if code >= 400 else "")
