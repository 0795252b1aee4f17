"""Carries out what the machine wants done: one call of `write` for each effect, from any thread."""

import logging
from collections.abc import Callable
from typing import Any

from hived.values.errors import HivedError, InvariantError, UserError
from hived_extender.kube.client import KubeClient, KubeError
from hived_extender.kube.metrics import Metrics
from hived_extender.pods.proofs import Prover
from hived_extender.service.effects import (
    AnnotatePod,
    Announce,
    BindPod,
    EvictPod,
    KeepChanged,
    ReadPod,
    TouchPod,
    Write,
    WriteStatuses,
)
from hived_extender.service.notices import Announced
from hived_extender.service.stimuli import Wrote
from hived_extender.service.writes import binding
from hived_extender.service.writes.binding_secret import BindingSecret
from hived_extender.service.writes.statuses import StatusWriter
from hived_extender.service.writes.telling import Teller

log = logging.getLogger(__name__)


class Writer:
    """See the module. Without a `secret` or `statuses`, nothing is written there."""

    def __init__(
        self,
        kube: KubeClient,
        metrics: Metrics,
        prover: Prover,
        secret: BindingSecret | None,
        statuses: StatusWriter | None,
    ) -> None:
        self._kube = kube
        self._metrics = metrics
        self._prover = prover
        self._secret = secret
        self._statuses = statuses
        self._teller = Teller(kube, metrics)

    def forget_counts(self) -> None:
        """Another replica may count events up from now on."""
        self._teller.forget_counts()

    def write(self, effect: Write, may_write: Callable[[], bool]) -> Wrote:
        """Carry an effect out and tell what came of it. `may_write`: does the term of the decision go on?

        Raises nothing: the machine waits for an answer to each effect, also where a mistake of ours is in the way.
        """
        try:
            return self._write(effect, may_write)
        except Exception as error:
            log.exception("a call in the background failed")
            if isinstance(effect, Announce):
                has_looked = effect.condition is not None  # as if it was written: it would fail again and again
                return Wrote(effect, found=Announced(len(effect.notices), has_looked, effect.condition))
            if isinstance(effect, WriteStatuses):
                return Wrote(effect, found=((), tuple(effect.states)))
            version = effect.version if isinstance(effect, BindPod) else None
            return Wrote(effect, InvariantError(f"{type(error).__name__}: {error}"), version)

    def _write(self, effect: Write, may_write: Callable[[], bool]) -> Wrote:
        if isinstance(effect, Announce):
            return Wrote(effect, found=self._teller.tell(effect))
        if isinstance(effect, WriteStatuses):
            return Wrote(effect, found=self._statuses.write(effect, may_write) if self._statuses else ((), ()))
        if isinstance(effect, BindPod):
            return self._bind(effect, may_write)
        try:
            return Wrote(effect, found=self._call(effect, may_write))
        except KubeError as error:
            self._complain(effect, error)
            return Wrote(effect, error)
        except UserError as error:
            return Wrote(effect, error)

    def _call(self, effect: Write, may_write: Callable[[], bool]) -> Any:
        if isinstance(effect, ReadPod):
            return binding.read(self._kube, effect.pod)
        if not may_write():
            raise UserError("this replica does not lead any more", code=503)
        if isinstance(effect, TouchPod):
            binding.touch(self._kube, effect.pod)
        elif isinstance(effect, AnnotatePod):
            binding.annotate(self._kube, self._prover, effect)
        elif isinstance(effect, EvictPod):
            call = self._kube.delete_pod if effect.by_force else self._kube.evict_pod
            own = {} if effect.grace_s is None else {"grace_period_s": effect.grace_s}
            call(effect.pod.namespace, effect.pod.name, uid=effect.pod.uid, **own)
        elif isinstance(effect, KeepChanged) and self._secret is not None:
            self._secret.keep(effect.changed)
        return None

    def _bind(self, effect: BindPod, may_write: Callable[[], bool]) -> Wrote:
        versions = [effect.version]
        error: HivedError | None = None
        try:
            binding.bind(self._kube, effect, may_write, versions.append)
        except (UserError, KubeError) as refusal:
            error = refusal
        outcome = "ok" if error is None else "error"
        self._metrics.binds.labels(effect.origin, outcome).inc()
        fields = {"pod": effect.pod.key, "node": effect.node, "origin": effect.origin, "outcome": outcome}
        level = logging.INFO if error is None else logging.WARNING
        log.log(level, "bind", extra={"fields": fields | {"reason": str(error or "")}})
        return Wrote(effect, error, versions[-1])

    def _complain(self, effect: Write, error: KubeError) -> None:
        """Log what the machine does not."""
        if isinstance(effect, TouchPod):
            log.warning("retry not asked", extra={"fields": {"pod": effect.pod.key, "reason": str(error)}})
        elif isinstance(effect, AnnotatePod) and not (error.is_conflict or error.is_not_found):
            fields = {"pod": effect.pod.key, "reason": str(error)}
            log.warning("bind info not written anew", extra={"fields": fields})
