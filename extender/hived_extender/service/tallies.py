"""Starts and preemptions of pods, counted by virtual cluster for metrics and for the history. Not thread-safe."""

from typing import NamedTuple

from hived.errors import UserError
from hived.state import NO_TIME
from hived_extender.pods.progress import read_time
from hived_extender.service.core import Term
from hived_extender.service.outbox import Outbox
from hived_extender.service.pods import PodRecord

MS_PER_HOUR = 3_600_000


class Loss(NamedTuple):
    """What a virtual cluster loses when a pod of it is preempted."""

    vc: str
    gpu_hours: float


class Tallies:
    """See the module."""

    def __init__(self, term: Term, outbox: Outbox) -> None:
        self._term, self._outbox = term, outbox

    def started(self, record: PodRecord) -> None:
        """A pod was bound where hived decided; it waited since it was created, by the API server's clock."""
        vc, _ = record.claim
        try:
            created_s = read_time(record.seen.created)
        except UserError:
            return
        self._outbox.metrics.count_start(vc, max(self._outbox.now.wall - created_s, 0.0))

    def loss_of(self, record: PodRecord | None, *, is_evicted: bool) -> Loss | None:
        """The loss if this pod ends now; None if it ends by itself.

        It does not if it was evicted, or if others reserve its cells. Work since its group's last checkpoint is lost,
        as victims are chosen by (rule 8.12); none is counted where the start is unknown.
        """
        core = self._term.core
        if core is None or record is None or record.request is None or record.place.info is None:
            return None
        if not is_evicted and not core.is_victim(record.request):
            return None
        group = core.state.groups.get(record.request.spec.group.name)
        since_ms = group.since_ms if group is not None else NO_TIME
        lost_ms = 0.0 if since_ms == NO_TIME else max(self._outbox.now.wall * 1000 - since_ms, 0.0)
        return Loss(record.claim[0], len(record.place.info.leaf_cell_indices) * lost_ms / MS_PER_HOUR)

    def preempted(self, loss: Loss) -> None:
        """A pod is gone that had to leave."""
        self._outbox.metrics.count_preempted(*loss)
