"""The causes of a refusal in one sentence, made under the lock: for kube-scheduler, events and conditions.

Equal requests share one explanation for each change of the state. Costly explanations are rationed, so that thousands
of waiting pods do not block others. A pod beyond the ration gets the last sentence of equal pods, or the core's own
message. Not thread-safe.
"""

import hashlib
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from hived.values.errors import UserError
from hived.values.events import Offer
from hived.values.specs import PodRequest, PodSpec
from hived.why.explaining import explain_wait
from hived.why.relaxing import Emptied
from hived_config.settings import WaitingMessages
from hived_extender.api.waiting import MASKED, RECLAIMING, BadNode, Certificate
from hived_extender.jobs.job import JobName
from hived_extender.jobs.progress import seconds_of
from hived_extender.machine.certificates import (
    GroupFacts,
    certificate_of,
    first_never,
    of_all_parts,
    once_others_left,
    rfc3339,
    sized_by,
    with_sentence,
)
from hived_extender.machine.cluster_cache import ClusterCache
from hived_extender.machine.core import Core, Refused
from hived_extender.machine.effects import Outbox
from hived_extender.machine.pods import PodRecord
from hived_extender.machine.stand_ins import held_job

RATE = 5.0
"""Explanations a second, of requests that differ or after a change. Each takes milliseconds in a large cluster.

Virtual clusters have equal parts of these, so that none uses up those of others.
"""

BURST = 10.0
"""Explanations at once, after a while without any."""

MOST_AT_ONCE = 32
"""Explanations for the pods of one question about pods that do not exist yet."""

LASTS_S = 60.0
"""The time for which pods are told a sentence of an earlier state, for want of another."""

DAY_S = 86_400.0

MOST_KEPT = 1024
"""Kinds of requests of which the last certificate is kept."""

log = logging.getLogger(__name__)

_Key = tuple[PodSpec, bytes, tuple[PodSpec, ...], str, str]


class _Known(msgspec.Struct):
    """A cached certificate without the core's message, which names a gang.

    It has the core's count of changes, the time `at_s` of its making, and its sentences by namespace and day.
    """

    moment: tuple[int, int]
    at_s: float
    found: Certificate
    sentences: dict[tuple[str, int, JobName | None], str]


class GroupMembers(NamedTuple):
    """The pods of a group, listed under the lock. `facts` takes longer and needs no lock: it may be a moment newer."""

    group: str
    has_cells: bool
    records: list[PodRecord]

    @property
    def facts(self) -> GroupFacts | None:
        """See `CacheFacts.of_group`."""
        records = self.records
        if not records:
            job = held_job(self.group)
            return None if job is None else GroupFacts(*job)
        first = records[0]
        starts = [one.progress.times.started_s for one in records if one.progress.times.started_s is not None]
        is_leaving = all(one.seen.is_leaving for one in records)
        ends = [seconds_of(one.seen.leaves_at) if is_leaving else ends_s_of(one) for one in records]
        owners = {one.owner for one in records}
        gang = self.group if first.gang is None else f"podgroup/{first.gang}"
        return GroupFacts(
            str(first.owner) if len(owners) == 1 and first.owner is not None else gang,
            first.namespace,
            min(starts, default=None),
            last_of(ends),
            is_leaving,
            is_waiting=not self.has_cells,
            user=first.user,
        )


class CacheFacts:
    """Names and moments from the present pods and nodes."""

    def __init__(self, cache: ClusterCache, core: Core) -> None:
        self._cache, self._core = cache, core

    def of_group(self, name: str) -> GroupFacts | None:
        """A group with cells; its job is the object that made all of its pods, else its gang, or the group itself."""
        return self.members(name).facts

    def members(self, name: str) -> "GroupMembers":
        """The pods of a group with cells, or which wait for them. Cost O(pods), a list of them."""
        holders = self._core.holders(name)
        group = self._core.state.groups.get(name)
        uids = holders or list(group.preempting_pods if group is not None else ())
        records = [record for uid in uids if (record := self._cache.pods.get(uid)) is not None]
        return GroupMembers(name, bool(holders), records)

    def of_node(self, name: str) -> BadNode:
        """The trouble of a node that is wholly or partly unusable."""
        reason, since_s = troubles(self._cache, () if name in self._cache.nodes.healthy else (name,)).get(
            name, ("", None)
        )
        return BadNode(name, reason, rfc3339(since_s))


def troubles(cache: ClusterCache, nodes: Iterable[str]) -> dict[str, tuple[str, float | None]]:
    """The reasons why these nodes are unusable, or other nodes partly; with the time (seconds since 1970), if known."""
    return cache.devices.troubles() | {node: cache.nodes.trouble(node) for node in nodes}


def limit_s_of(record: PodRecord) -> float | None:
    """Seconds that a pod has its cells at most from its start, with its grace period; None if undeclared."""
    limit_s = record.progress.limit_s
    return None if limit_s is None else limit_s + record.seen.grace_s


def ends_s_of(record: PodRecord) -> float | None:
    """The latest end of a pod by its own declaration, in seconds since 1970; None if undeclared."""
    started_s, limit_s = record.progress.times.started_s, limit_s_of(record)
    return None if started_s is None or limit_s is None else started_s + limit_s


def last_of(moments: Sequence[float | None]) -> float | None:
    """The latest of all moments; None if one is unknown."""
    known = [each for each in moments if each is not None]
    return max(known) if known and len(known) == len(moments) else None


class Explaining:
    """Makes and caches explanations of refusals. `messages` chooses their style."""

    def __init__(self, cache: ClusterCache, outbox: Outbox) -> None:
        self.messages = WaitingMessages.EXPLAINED
        self._cache = cache
        self._outbox = outbox
        self._known: dict[_Key, _Known] = {}
        self._rations: dict[str, Ration] = {}
        self._emptied = Emptied()

    def told(
        self, record: PodRecord, requests: Sequence[PodRequest], refused: Refused, message: str, refusals: str
    ) -> str:
        """The text for a refused pod, or a pod of a refused gang, with `requests`; `message` is the core's.

        `refusals` names the Kubernetes rules that refuse nodes.
        """
        known = self._look_up([record], requests, refused, refusals, self._has_ration)
        if known is None:
            return self._cache.explained(record, message)
        record.cause = known.found.cause
        reader = record.namespace, int(self._outbox.now.wall // DAY_S), record.owner
        sentence = known.sentences.get(reader)
        if sentence is None:
            sentence = known.sentences[reader] = self.as_told(known.found, record.namespace, record.owner).sentence
        text = self.words(sentence, message)
        if self.messages is WaitingMessages.EXPLAINED and "bad" in (known.found.cause, *known.found.also):
            return text  # which has the nodes that are short of devices
        return self._cache.explained(record, text)

    def words(self, sentence: str, message: str) -> str:
        """The sentence, or the core's message before it."""
        return sentence if self.messages is WaitingMessages.EXPLAINED else f"{message}; {sentence}"

    def as_told(self, found: Certificate, namespace: str, owner: JobName | None = None) -> Certificate:
        """A certificate for a pod of a namespace, and of a job object: every reader of the pod sees it.

        Pods of the same object are none of the holders.
        """
        holders = [
            one if one.namespace == namespace else replace(one, group=MASKED, namespace="")
            for one in found.holders
            if owner is None or found.cause in RECLAIMING or one.group != str(owner)
        ]
        return with_sentence(replace(found, holders=holders), self._outbox.now.wall, namespace)

    def certificate(
        self,
        records: Sequence[PodRecord],
        requests: Sequence[PodRequest],
        refused: Refused,
        refusals: str,
        ration: "Ration",
    ) -> Certificate | None:
        """The certificate of a refusal, with all names; None if it is no refusal of a search, or beyond the ration.

        Cost: a look into a table, or one explanation by the core.
        """
        known = self._look_up(records, requests, refused, refusals, lambda vc: ration.take(0.0))
        return replace(known.found, reason=refused.reason) if known is not None else None

    def _look_up(
        self,
        records: Sequence[PodRecord],
        requests: Sequence[PodRequest],
        refused: Refused,
        refusals: str,
        may_explain: Callable[[str], bool],
    ) -> _Known | None:
        core, request = self._cache.core, refused.request
        if core is None or request is None:
            return None
        others = tuple(one.spec.of_group("") for one in requests) if len(requests) > 1 else ()
        first = next((record.ruled for record in records), None)
        sizes = sized_by(request, first.demands, core.state.spec) if first is not None and not others else ""
        key = (*shape_of(request, refused.offer), others, refusals, sizes)
        moment, now_s = (core.number, core.change_count), self._outbox.now.at
        known = self._known.get(key)
        if known is not None and known.moment == moment:
            return known
        if not may_explain(request.spec.virtual_cluster):
            is_of_now = known is not None and known.moment[0] == core.number and now_s - known.at_s < LASTS_S
            return known if is_of_now else None
        try:
            offer = refused.offer
            if others and not any(one.spec.group.name in core.state.groups for one in requests):
                never = first_never(self._emptied, core.state, requests, [offer] * len(requests))
                request, offer = (request, offer) if never is None else (requests[never], None)
            if offer is not None and records:
                offer = once_others_left(request, offer, self._cache.offers.could_take(records))
            explanation = explain_wait(core.state, request, offer, self._emptied)
            explanation = of_all_parts(self._emptied, core.state, requests, explanation)
        except UserError:  # the core refuses it by now, and says so when it is asked
            return None
        except Exception:  # the state is as it was, and nothing is decided by words
            log.exception("cannot explain why a pod waits", extra={"fields": {"request": request.label}})
            return None
        found = certificate_of(
            explanation, requests or [request], core.state.topology, CacheFacts(self._cache, core),
            self._outbox.now.wall, reason="", rules=refusals, sized_by=sizes,
        )  # fmt: skip
        if len(self._known) >= MOST_KEPT:
            self._known.clear()
        known = self._known[key] = _Known(moment, now_s, found, {})
        return known

    def _has_ration(self, vc: str) -> bool:
        core = self._cache.core
        parts = len(core.state.topology.vc_names) if core is not None else 1
        if vc not in self._rations or self._rations[vc].parts != parts:
            self._rations[vc] = Ration(RATE / parts, max(1.0, BURST / parts), parts)
        return self._rations[vc].take(self._outbox.now.at)


class Ration:
    """A token bucket of `most` explanations, refilled at `rate` a second: one of several equal `parts`."""

    def __init__(self, rate: float, most: float, parts: int = 1) -> None:
        self.parts = parts
        self._rate, self._most = rate, most
        self._left, self._at_s = most, 0.0

    def take(self, at_s: float) -> bool:
        """Take a token, if there is one."""
        self._left, self._at_s = min(self._most, self._left + self._rate * (at_s - self._at_s)), at_s
        if self._left < 1:
            return False
        self._left -= 1
        return True


def shape_of(request: PodRequest, offer: Offer | None) -> tuple[PodSpec, bytes]:
    """A key equal for requests that wait for the same causes; rules between a gang's pods are its own."""
    return request.spec if offer is not None and offer.rules else request.spec.of_group(""), digest(offer)


def digest(offer: Offer | None) -> bytes:
    """A key of 16 bytes, equal for offers of the same nodes. Cost O(nodes), or O(slots x nodes) if slots differ."""
    if offer is None:
        return b""
    found = hashlib.blake2b(digest_size=16)
    for rows in (np.asarray(offer.nodes), np.asarray(offer.after)):
        found.update(repr(rows.shape).encode())
        found.update(np.packbits(rows[:1] if rows.strides[0] == 0 else rows).tobytes())
    return found.digest()
