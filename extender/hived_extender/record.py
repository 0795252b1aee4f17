"""The record of a run: every event that reached the core, as a scenario that `hived replay` repeats.

A run is a chain of files `RUN-0001.jsonl`, `RUN-0002.jsonl`, ... beside a copy of its configuration, `RUN.yaml`. Only
the first has the header, and a `new` line begins each term of leadership; the parts joined in order are one scenario.
A part cannot stand alone, because free lists and reservations depend on the whole history. Pods are named by uid and
their specs are written out with all defaults, so that a replay sees exactly what the core saw.

A line is on its way to the disk before the next event is handled, so a record ends with the event that broke something.
A record that cannot be written is given up, with an error in the log: recording never stops scheduling.
"""

import logging
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np

from hived.events import Phase
from hived.specs import PodRequest, PodSpec
from hived_extender.node_names import Mask

log = logging.getLogger(__name__)

PART_SIZE = 64 * 1024 * 1024

_encoder = msgspec.json.Encoder()


class Recorder:
    """Writes one run. Not thread-safe: its owner calls it under the lock that orders the events."""

    def __init__(
        self,
        directory: Path,
        config_file: Path,
        on_failure: Callable[[], None] = lambda: None,
        *,
        run: str = "",
        part_size: int = PART_SIZE,
    ) -> None:
        """Start a run in `directory`, made if need be; raises OSError if that fails.

        `on_failure` is called once, when a line could not be written; `run` names the run (default: the time in UTC);
        `part_size` in bytes.
        """
        self._directory = directory
        self._part_size = part_size
        self._on_failure = on_failure
        now = time.time()
        self.run = run or time.strftime("%Y%m%dT%H%M%S", time.gmtime(now)) + f"{int(now % 1 * 1000):03d}Z"
        directory.mkdir(parents=True, exist_ok=True)
        self._config = f"{self.run}.yaml"
        shutil.copyfile(config_file, directory / self._config)
        self._part = 0
        self._file: BinaryIO | None = self._next_part()
        self._write({"op": "header", "name": self.run, "config": self._config})

    def began(self) -> None:
        """The core starts anew from an empty state, as it does whenever a replica begins to lead."""
        self._write({"op": "new", "config": self._config})

    def node_changed(self, node: str, is_healthy: bool) -> None:
        """A configured node turned healthy or bad."""
        self._write({"op": "updateNode", "node": node, "old": not is_healthy, "new": is_healthy})

    def scheduled(
        self, pod: PodRequest, phase: Phase, suggested: Mask | None, node_names: Sequence[str], commit: bool
    ) -> None:
        """A pod was to be placed; `suggested` is a mask over `node_names`, `commit` that a bind was carried out."""
        self._write(
            {
                "op": "schedule",
                "pod": pod.uid,
                "spec": spec_fields(pod.spec),
                "phase": phase.value,
                "suggested": _suggested(suggested, node_names),
                "commit": commit,
            }
        )

    def bound(self, pod: PodRequest, node: str, bind_info: str) -> None:
        """A pod was found bound; `bind_info` is its annotation."""
        self._write(
            {"op": "addBound", "pod": pod.uid, "node": node, "spec": spec_fields(pod.spec), "bindInfo": bind_info}
        )

    def split(self, group: str, pods: Sequence[PodRequest]) -> None:
        """The pods of an allocated group go on as groups of their own, one per slot."""
        parts = [{"pod": pod.uid, "spec": spec_fields(pod.spec)} for pod in pods]
        self._write({"op": "split", "group": group, "pods": parts})

    def deleted(self, uid: str) -> None:
        """A pod is gone."""
        self._write({"op": "delete", "pod": uid})

    def close(self) -> None:
        """Finish the run."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _next_part(self) -> BinaryIO:
        self._part += 1
        return (self._directory / f"{self.run}-{self._part:04d}.jsonl").open("xb", buffering=0)

    def _write(self, op: dict[str, Any]) -> None:
        if self._file is None:
            return
        try:
            if self._file.tell() >= self._part_size:
                self._file.close()
                self._file = self._next_part()
            self._file.write(_encoder.encode(op) + b"\n")
        except OSError:
            log.exception("the record of this run ends here: it cannot be written")
            self.close()
            self._on_failure()


def _suggested(mask: Mask | None, names: Sequence[str]) -> Any:
    """The shorter of the list of names in the mask and the list of those not in it."""
    if mask is None:
        return "all"
    if 2 * int(mask.sum()) < len(names):
        return [names[index] for index in np.flatnonzero(mask).tolist()]
    return {"except": [names[index] for index in np.flatnonzero(~mask).tolist()]}


def spec_fields(spec: PodSpec) -> dict[str, Any]:
    """A pod's spec as its annotation would spell it, with the group and all defaults written out.

    What the reference does not have is there only if it is asked for.
    """
    beyond: dict[str, Any] = {}
    if spec.within_cell or not spec.within_is_required:
        beyond["withinCell"] = {"required" if spec.within_is_required else "preferred": spec.within_cell}
    if spec.beside:
        beyond["beside"] = spec.beside
    if spec.elastic:
        beyond["elastic"] = True
    return beyond | {
        "virtualCluster": spec.virtual_cluster,
        "priority": spec.priority,
        "pinnedCellId": spec.pinned_cell_id,
        "leafCellType": spec.leaf_cell_type,
        "leafCellNumber": spec.leaf_cell_count,
        "gangReleaseEnable": spec.gang_release,
        "lazyPreemptionEnable": spec.lazy_preemption,
        "ignoreK8sSuggestedNodes": spec.ignore_suggested_nodes,
        "affinityGroup": {
            "name": spec.group.name,
            "members": [
                {"podNumber": member.pod_count, "leafCellNumber": member.leaf_cell_count}
                for member in spec.group.members
            ],
        },
    }
