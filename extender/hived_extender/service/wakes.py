"""Having kube-scheduler try a pod again, by a change of the pod: the event that it needs."""

from hived.values.errors import HivedError
from hived_extender.kube.client import KubeError
from hived_extender.service.effects import TouchPod
from hived_extender.service.outbox import Outbox
from hived_extender.service.pods import PodName, PodRecord, PodTable
from hived_extender.service.retries import Retries

AT_ONCE = 16

SILENT_S = 1.0
"""After a wake without an answer, others are not tried: thousands of them would keep the service from its work."""


class Wakes:
    """The pods that kube-scheduler is to be told of. One that cannot be told of, and still waits, is retried later."""

    def __init__(self, outbox: Outbox, pods: PodTable, retries: Retries) -> None:
        self._outbox = outbox
        self._pods = pods
        self._retries = retries
        self._ready: dict[str, PodName] = {}
        self._under_way = 0
        self._silent_until = 0.0

    def ask(self, record: PodRecord) -> None:
        """Have kube-scheduler try a pod again, soon."""
        if self._outbox.now.at < self._silent_until:
            self._failed(record.uid)
            return
        self._ready[record.uid] = record.named
        self._go_on()

    def wrote(self, effect: TouchPod, error: HivedError | None) -> None:
        """A pod was changed, or could not be."""
        self._under_way -= 1
        if error is not None:
            self._failed(effect.pod.uid)
        if isinstance(error, KubeError) and error.status == 0:
            self._silent_until = self._outbox.now.at + SILENT_S
            waiting, self._ready = self._ready, {}
            for uid in waiting:
                self._failed(uid)
        self._go_on()

    def forget_all(self) -> None:
        """The term is over."""
        self._ready.clear()

    def _go_on(self) -> None:
        while self._ready and self._under_way < AT_ONCE:
            self._under_way += 1
            self._outbox.send(TouchPod(self._ready.pop(next(iter(self._ready)))))

    def _failed(self, uid: str) -> None:
        record = self._pods.get(uid)
        if record is not None and not record.state.has_node:
            record.is_asked = True
            self._retries.not_woken(uid)
