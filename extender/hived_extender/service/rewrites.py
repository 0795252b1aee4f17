"""Bound pods whose annotations are to be written anew, and hived's own text for pods that somebody has changed.

The annotations of a bound pod change when its group has lost its place in its VC. They do after an update from a
version that did not prove them, too. A tenant who may change a pod may change hived's annotations, where no admission
policy forbids that. The original is kept where tenants cannot write, so that a restart knows.
"""

from collections.abc import Mapping

from hived.values.errors import HivedError
from hived_extender.kube.client import KubeError
from hived_extender.service.effects import AnnotatePod, KeepChanged
from hived_extender.service.outbox import Outbox

TIMER = "rewrite"
KEEP_TIMER = "keep changed"

AT_ONCE = 16
WAITS_S = (0.2, 1.0, 5.0)
"""After each attempt but the last one."""

PAUSE_S = 0.5
"""The time between two writes of changed bindings: an owner may change a pod again and again."""

RETRY_S = 2.0


class Rewrites:
    """The pods to be annotated, each with the newest annotations, a few times if need be."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._wanted: dict[str, AnnotatePod] = {}
        self._failures: dict[str, int] = {}
        self._ready: dict[str, None] = {}
        self._under_way: set[str] = set()

    def ask(self, effect: AnnotatePod) -> None:
        """Have a pod annotated, instead of with what was asked before."""
        uid = effect.pod.uid
        self._wanted[uid] = effect
        self._failures.pop(uid, None)
        self._be_ready(uid)

    def time_came(self, _: str, uid: str) -> None:
        """A pod is to be tried again."""
        self._be_ready(uid)

    def wrote(self, effect: AnnotatePod, error: HivedError | None) -> None:
        """A pod was annotated, or was not."""
        uid = effect.pod.uid
        self._under_way.discard(uid)
        if self._wanted.get(uid) is not effect:
            self._be_ready(uid)
        else:
            count = self._failures.get(uid, 0)
            is_over = error is None or (isinstance(error, KubeError) and error.is_not_found)
            if is_over or count == len(WAITS_S):
                self._forget(uid)
            else:
                self._failures[uid] = count + 1
                self._outbox.wake_in((TIMER, uid), WAITS_S[count])
        self._go_on()

    def _be_ready(self, uid: str) -> None:
        """A pod may be written; one that is being written has its turn afterwards, as the later write would win."""
        if uid in self._wanted and uid not in self._under_way:
            self._ready[uid] = None
            self._go_on()

    def forget_all(self) -> None:
        """The term is over."""
        for uid in list(self._wanted):
            self._forget(uid)

    def _forget(self, uid: str) -> None:
        del self._wanted[uid]
        self._failures.pop(uid, None)
        self._ready.pop(uid, None)
        self._outbox.timers.drop((TIMER, uid))

    def _go_on(self) -> None:
        while self._ready and len(self._under_way) < AT_ONCE:
            uid = next(iter(self._ready))
            del self._ready[uid]
            self._under_way.add(uid)
            self._outbox.send(self._wanted[uid])


class ChangedBindings:
    """The original annotations of changed pods, by uid: the newest are written, at intervals."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._wanted: Mapping[str, Mapping[str, str]] | None = None
        self._is_under_way = False
        self._is_closing = False

    def keep(self, changed: Mapping[str, Mapping[str, str]]) -> None:
        """Have this written in place of what was before."""
        self._wanted = changed
        self._go_on()

    def time_came(self, _: str, __: str) -> None:
        """The next one may be written."""
        self._go_on()

    def flush(self) -> None:
        """Have it written without a pause, as the process is about to end."""
        self._is_closing = True
        self._outbox.timers.drop((KEEP_TIMER, ""))
        self._go_on()

    def wrote(self, effect: KeepChanged, error: HivedError | None, *, is_current: bool) -> None:
        """It was written, or was not, in this term or another."""
        self._is_under_way = False
        if self._is_closing:
            self._go_on()
            return
        if error is not None and is_current and self._wanted is None:
            self._wanted = effect.changed
        self._outbox.wake_in((KEEP_TIMER, ""), PAUSE_S if error is None else RETRY_S)

    def forget_all(self) -> None:
        """The term is over: the next leader writes what it finds."""
        self._wanted = None

    def _go_on(self) -> None:
        is_resting = (KEEP_TIMER, "") in self._outbox.timers
        if self._wanted is not None and not self._is_under_way and not is_resting:
            self._outbox.send(KeepChanged(self._wanted))
            self._wanted, self._is_under_way = None, True
