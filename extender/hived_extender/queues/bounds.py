"""The most that a job may have at once in its queue, told before the job is there."""

from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec
import yaml
from msgspec.structs import replace

from hived.values.errors import UserError
from hived.values.specs import MIN_GUARANTEED_PRIORITY, OPPORTUNISTIC_PRIORITY, ClusterSpec
from hived_config.division import divide
from hived_extender.api.waiting import PodOutcome
from hived_extender.jobs.annotations import SCHEDULING_SPEC
from hived_extender.jobs.asks import PRIORITY
from hived_extender.jobs.interpreter import Interpreter
from hived_extender.jobs.job import Job
from hived_extender.jobs.kinds import marks
from hived_extender.jobs.needs import need_of
from hived_extender.queues.units import Cells, TooLargeError, unit_of


class QueueBound(msgspec.Struct, frozen=True):
    """The most that a job may have at once in its queue: `refusal` says why it can never run, "" if it may.

    It `only_borrows` if its virtual cluster is too small for it, and its queue borrows.
    """

    refusal: str
    only_borrows: bool

    def judged(self, told: Sequence[PodOutcome], ask_lent: Callable[[], Sequence[PodOutcome]]) -> list[PodOutcome]:
        """The outcomes of its pods in its queue, by those that are `told` of them alone.

        `ask_lent` has those of the same pods as opportunistic ones.
        """
        if self.only_borrows and any(one.outcome == "never" for one in told):
            return [_borrowed(one, lent) for one, lent in zip(told, ask_lent(), strict=True)]
        if self.refusal:
            return [one if one.outcome == "refused" else _never(one, self.refusal) for one in told]
        return [*told]


def bound_of(job: Job, interpreter: Interpreter, cluster: ClusterSpec, trees: Collection[str]) -> QueueBound | None:
    """Return what a queue gives a job; None if the job is in no queue, or cannot be read.

    A quota tree has the queues of the virtual clusters `trees`, and says whether these borrow.
    """
    if job.roles_in is not None or not marks.may_queue(job.labels, job.annotations):
        return None
    try:
        need = need_of(replace(job, manager=None), interpreter)
    except UserError:
        return None
    if need is None:
        return None
    vc, chains = need.spec.virtual_cluster, divide(cluster)
    borrows = need.is_preemptible and interpreter.rules.queueing.of(vc).borrows
    is_lent = need.spec.priority < MIN_GUARANTEED_PRIORITY or borrows
    own = Cells(cluster, sum(chain.leaves_of(vc) for chain in chains), f"queue {vc} does not borrow, and has")
    all_of_it = Cells(cluster, sum(chain.leaf_count for chain in chains))
    try:
        unit_of(job, need, all_of_it if is_lent or vc in trees else own, None)
    except TooLargeError as error:
        return QueueBound(error.message, only_borrows=False)
    try:
        unit_of(job, need, own, None)
    except TooLargeError:
        return QueueBound("", only_borrows=True)
    return QueueBound("", only_borrows=False)


def opportunistic(annotations: Mapping[str, str]) -> dict[str, str]:
    """The annotations of a pod as it runs on cells that its queue borrows; they can be read."""
    found = dict(annotations)
    if SCHEDULING_SPEC in found:
        spec = {**yaml.safe_load(found[SCHEDULING_SPEC]), "priority": OPPORTUNISTIC_PRIORITY}
        found[SCHEDULING_SPEC] = msgspec.json.encode(spec).decode()
    else:
        found[PRIORITY] = str(OPPORTUNISTIC_PRIORITY)
    return found


def _borrowed(one: PodOutcome, lent: PodOutcome) -> PodOutcome:
    """The outcome of a pod that can have cells in its queue only on loan, by that of an opportunistic one."""
    if one.outcome != "never":
        return one
    if lent.outcome in ("never", "refused"):
        return _never(one, lent.reason)
    return replace(one, outcome="wait", reason="it waits in its queue until it can borrow cells", certificate=None)


def _never(one: PodOutcome, reason: str) -> PodOutcome:
    return replace(one, outcome="never", reason=reason, certificate=None)
