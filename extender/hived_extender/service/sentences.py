"""A certificate as one sentence, the first that people read of a waiting job (docs/waiting.md).

The sentence follows from the certificate alone. It changes only when a fact does: it has moments, and never ages.
"""

from collections.abc import Iterator, Sequence

from hived.values.specs import OPPORTUNISTIC_PRIORITY
from hived_extender.api.waiting import MASKED, TAKEN_BACK, BadNode, Certificate, Holder, Preempted

NAMED = 3
"""Jobs and nodes that a sentence names; it counts the others."""

ANOTHERS = "another tenant's job"

NEVER_PREEMPTS = "others use its cells, and its preemptionPolicy is Never: it waits until they end"

NOBODY_HELPS = "others use its cells, and kube-scheduler would refuse it whoever of them left"

OTHERS_LEAVE = "others are leaving for other reasons, and it starts without more victims once they have left"

NO_NODE = "no node has the labels that it selects"
"""How it is told that a pod selects nodes by labels that none has, whoever else is there and however healthy."""

_COUNTED = frozenset({"in-use", "in-pieces", "bad", "kubernetes", "never"})

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def is_derived(found: Certificate) -> bool:
    """Does the sentence follow from the rest? Others are messages of the service."""
    return found.cause in _COUNTED or (found.cause in TAKEN_BACK and bool(found.holders))


def sentence_of(found: Certificate, today: str, namespace: str = "") -> str:
    """The sentence of a certificate that is derived, for a job of `namespace`; `today` is a date such as 2026-11-23.

    Jobs of the same namespace are called by their bare names.
    """
    if found.cause == "never":
        return f"needs {found.asks}; it can never run: {_bound(found)}"
    if found.never_preempts:
        return f"needs {found.asks}; {NEVER_PREEMPTS}"
    if found.cause in TAKEN_BACK:
        return f"needs {found.asks}; its cells are being taken back from {_holders(found, today, namespace)}"
    if found.cause == "kubernetes" and found.rules.startswith((NO_NODE, NOBODY_HELPS)):
        return f"needs {found.asks}; {found.rules}"
    parts = list(_parts(found, today, namespace))
    text = parts[0] if parts else f"{_place(found)} has no room of this shape"
    return f"needs {found.asks}; {text}" + "".join(f" and {part}" for part in parts[1:])


def preempted_sentence(found: Preempted, today: str, namespace: str = "") -> str:
    """When a job of `namespace` was preempted, and for whom."""
    by = ANOTHERS if found.by == MASKED else short_name(found.by, found.namespace, namespace)
    return f"preempted at {moment(found.at, today)}" + (f" for {by}" if by else "")


def moment(at: str, today: str) -> str:
    """A moment in RFC 3339 as people write it: `14:02`, of another day `Nov 22 14:02`."""
    if len(at) < len("2026-11-23T14:02"):
        return at
    clock = at[11:16]
    return clock if at.startswith(today) else f"{_MONTHS[int(at[5:7]) - 1]} {int(at[8:10])} {clock}"


def limit(at: str, today: str) -> str:
    """A moment at which something is over at the latest: with its seconds, unless they are zero."""
    seconds = at[16:19]
    return moment(at, today) + (seconds if seconds != ":00" else "")


def counted(count: int, noun: str) -> str:
    """`1 node`, `2 nodes`; types of cells have no plural."""
    return f"{count} {noun}s" if count != 1 and noun in {"node", "pod", "job", "leaf cell"} else f"{count} {noun}"


def listed_with(parts: Sequence[str], more: str = "") -> str:
    """`a`, `a and b`, `a, b and 3 more`."""
    every = [*parts, more] if more else list(parts)
    return every[0] if len(every) == 1 else f"{', '.join(every[:-1])} and {every[-1]}"


def _bound(found: Certificate) -> str:
    """Why no end of anybody would help."""
    place = _place(found)
    if found.largest_ever <= 0:
        return f"{place} has no cells for it"
    if found.largest_asked > found.largest_ever:
        return f"a pod can have at most {found.largest_ever} {found.leaf_type} in {place}"
    if found.asked > found.total:
        return f"{place} has {found.total}{_unit(found)} in all"
    return f"{place} has no place of this shape"


def _parts(found: Certificate, today: str, namespace: str) -> Iterator[str]:
    """A clause for each cause; the first names the place."""
    place, of_all = _place(found), f"of {found.total}{_unit(found)}"
    is_first = True
    for cause in (found.cause, *found.also):
        if cause == "in-use":
            who = _holders(found, today, namespace) if found.holders else ""
            if found.in_use:
                is_told = "in-pieces" in found.also
                broken = f" and {found.in_pieces} in part" if found.in_pieces and found.unit and not is_told else ""
                yield f"{place} has {found.in_use} {of_all} in use{broken}{who and f' by {who}'}"
            else:
                yield f"cells of {place} that it needs are in use{who and f' by {who}'}"
        elif cause == "in-pieces":
            whose = f"{place} has {found.free_leaves} {found.leaf_type} free" if is_first else "the free ones are"
            yield f"{whose}, in pieces of at most {found.largest_fit}" if is_first else f"{whose} in pieces"
        elif cause == "bad":
            where = f"{place} has {found.bad} {of_all} on bad nodes: " if is_first and found.bad else ""
            yield where + bad_nodes_told(found.bad_nodes, today) if found.bad_nodes else where + _uncounted(found)
        elif cause == "kubernetes":
            nodes = f"{found.refused} of {counted(found.total, found.unit)}" if found.refused else "the nodes with room"
            yield f"Kubernetes rules out {nodes} of {place}" + (f": {found.rules}" if found.rules else "")
        is_first = False


def _place(found: Certificate) -> str:
    if found.is_opportunistic:
        return "the cluster"
    return f"pinned cell {found.pinned}" if found.pinned else found.vc or "the cluster"


def _unit(found: Certificate) -> str:
    """The word for what is counted, unless the sentence has it already."""
    is_said = found.asks.split(" ")[1:2] in ([found.unit], [f"{found.unit}s"])
    return "" if not found.unit or is_said else " " + counted(found.total, found.unit).partition(" ")[2]


def _holders(found: Certificate, today: str, namespace: str) -> str:
    named = [one for one in found.holders if one.group != MASKED]
    parts = [_holder(one, today, namespace) for one in named[:NAMED]]
    others = len(found.holders) - len(named)
    more = max(0, len(named) - NAMED) + found.more_holders
    if others and not more:
        return listed_with(parts, ANOTHERS if others == 1 else f"{others} jobs of other tenants")
    if others:
        return listed_with(parts, f"{others + more} more, jobs of other tenants among them")
    return listed_with(parts, f"{more} more" if more else "")


def _holder(holder: Holder, today: str, namespace: str) -> str:
    facts = ["opportunistic" if holder.priority <= OPPORTUNISTIC_PRIORITY else f"priority {holder.priority}"]
    facts += [f"since {moment(holder.since, today)}"] if holder.since else []
    if holder.is_waiting:
        facts += ["has reserved them"]
    if holder.is_leaving:
        facts += [f"gone by {limit(holder.until, today)}" if holder.until else "leaving"]
    elif holder.until:
        facts += [f"ends by {limit(holder.until, today)}"]
    return f"{short_name(holder.group, holder.namespace, namespace)} ({', '.join(facts)})"


def short_name(job: str, namespace: str, reader: str) -> str:
    """The name of a job of a namespace, as people of the namespace `reader` call it."""
    kind, _, bare = job.partition("/")
    name = bare if kind == "podgroup" or bare.startswith(f"{namespace}/") else job
    for separator in "/:":
        if reader and namespace == reader:
            name = name.removeprefix(reader + separator)
    return name


def _uncounted(found: Certificate) -> str:
    return f"{counted(found.bad, found.unit)} cannot be used"


def running_sentence(bad: Sequence[BadNode], demoted: str, today: str) -> str:
    """The troubles of a job that runs: nodes that cannot be used, and since when it has no guarantee; "" for none."""
    parts = [bad_nodes_told(bad, today)] if bad else []
    words, _, at = demoted.rpartition(" ")
    told = f"{words} {moment(at, today)}" if at[:4].isdigit() and "T" in at else demoted
    return "; ".join([*parts, *([f"opportunistic {told}"] if demoted else [])])


def bad_nodes_told(bad: Sequence[BadNode], today: str) -> str:
    """Nodes that cannot be used, those that are bad alike together; there is one at least."""
    alike: dict[str, list[str]] = {}
    for node in bad:
        since = f" (since {moment(node.since, today)})" if node.since else ""
        alike.setdefault(f"{node.reason or 'bad'}{since}", []).append(node.node)
    parts: list[str] = []
    left, others = NAMED, 0
    for why, nodes in alike.items():
        named = nodes[:left]
        left -= len(named)
        if named:
            more = f"{len(nodes) - len(named)} more" if len(nodes) > len(named) else ""
            noun, verb = ("node", "is") if len(nodes) == 1 else ("nodes", "are")
            parts.append(f"{noun} {listed_with(named, more)} {verb} {why}")
        else:
            others += len(nodes)
    return listed_with(parts, f"{counted(others, 'node')} more cannot be used" if others else "")
