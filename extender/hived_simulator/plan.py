"""A simulation as it was asked for: configurations, trace, policies and options, checked and ready to run."""

import hashlib
import random
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

import msgspec
from msgspec.structs import replace

from hived import __version__
from hived.cells.layout import build_topology
from hived.values.errors import UserError
from hived.values.specs import OPPORTUNISTIC_PRIORITY, ClusterSpec
from hived_config.loader import load_cluster
from hived_simulator.changes import Change, parse_changes
from hived_simulator.clusters import SimulatedCluster
from hived_simulator.easy import EasyCluster, EasyLoop
from hived_simulator.hardware import nodes_below
from hived_simulator.hived_cluster import HivedCluster
from hived_simulator.loop import Loop, Manner
from hived_simulator.private import PrivateClusters
from hived_simulator.queued import NAMES as QUEUES
from hived_simulator.queued import QueuedCluster, QueuedLoop, Queueing, is_queue, queueing_named
from hived_simulator.quotas import QuotaCluster
from hived_simulator.tasks import Task, tasks_of, within_bounds
from hived_simulator.tenants import assigned, with_known_models
from hived_simulator.traces.draft import Options as Reading
from hived_simulator.traces.fields import parse_duration
from hived_simulator.traces.jobs import Job, Trace
from hived_simulator.traces.reading import read_trace

FORMAT = "hived-simulation/1"


class Kind(StrEnum):
    """Kinds of schedulers, beside those with queues, which are named in `queued.NAMES`."""

    PRIVATE = "private"
    HIVED = "hived"
    QUOTA_BEST_FIT = "quota-bestfit"
    QUOTA_SPREAD = "quota-spread"
    EASY = "easy"


BASELINES = (Kind.PRIVATE, Kind.QUOTA_BEST_FIT, Kind.QUOTA_SPREAD, Kind.EASY)
LENDING = "over-quota"
"""The configuration with OverQuota.OPPORTUNISTIC; with `:30m`, evicted jobs keep what they had each 30 minutes."""


class OverQuota(StrEnum):
    """The lot of guaranteed work for which its virtual cluster has no room."""

    WAIT = "wait"
    OPPORTUNISTIC = "opportunistic"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Choices of a user; lengths of time in seconds.

    against : policies beside the configuration: names of baselines, LENDING, or files of other configurations
    what : changes of the cluster, as on the command line
    tenants : TENANT=VC pairs, or `auto`; none if tenants are named as virtual clusters
    checkpoint_s : what an evicted job keeps: its work up to the last multiple of this; None as the trace says
    limit_factor, unlimited_share : declared limits under policies with queues, see `queueing.Queueing`
    opportunistic_share : the share of the trace's guaranteed jobs that are opportunistic instead, drawn by `seed`
    draws : further runs with durations drawn anew
    every_s : from one row of the series to the next
    trace_format : of the trace's file; "" to recognise it
    """

    against: tuple[str, ...] = ()
    what: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()
    over_quota: OverQuota = OverQuota.WAIT
    checkpoint_s: float | None = None
    grace_s: float = 0.0
    has_backfill: bool = False
    is_lazy: bool = False
    limit_factor: float = 2.0
    unlimited_share: float = 0.0
    opportunistic_share: float = 0.0
    seed: int = 0
    draws: int = 0
    every_s: float = 600.0
    trace_format: str = ""


class Input(msgspec.Struct, frozen=True):
    """A file that was read: its name without folders, and the SHA-256 of its bytes."""

    file: str
    sha256: str


class Policy(msgspec.Struct, frozen=True):
    """A scheduler that the trace runs on, of a `Kind` or a name of `queued.NAMES`.

    `checkpoint_s`: of its jobs; None as for all policies.
    """

    name: str
    kind: str
    configuration: Input
    rules: int
    has_backfill: bool
    over_quota: OverQuota
    checkpoint_s: float | None = None


class Plan(msgspec.Struct, frozen=True):
    """A simulation. `specs` are by the name of the policy, `tenants` maps those of the trace to virtual clusters.

    `change_files` has the file of each change, None if it has none.
    """

    options: Options
    policies: tuple[Policy, ...]
    specs: dict[str, ClusterSpec]
    changes: tuple[Change, ...]
    change_files: tuple[Input | None, ...]
    trace: Trace
    trace_file: Input
    tenants: dict[str, str]

    @property
    def identity(self) -> str:
        """A digest of everything that results depend on: inputs, options, version. A reader may look at files beside
        that of the trace, so the jobs themselves are part of it.
        """
        told = [
            FORMAT, __version__, self.options, self.policies, self.change_files, self.trace_file, self.tenants,
            self.trace,
        ]  # fmt: skip
        return hashlib.sha256(msgspec.json.encode(told, order="deterministic")).hexdigest()

    def cluster(self, policy: Policy) -> SimulatedCluster:
        """A fresh, idle cluster under a policy."""
        spec = self.specs[policy.name]
        if policy.kind == Kind.PRIVATE:
            return PrivateClusters(spec, self.options.is_lazy)
        if policy.kind == Kind.HIVED:
            return HivedCluster(spec, self.options.is_lazy)
        if policy.kind in QUEUES:
            return QueuedCluster(spec)
        if policy.kind == Kind.EASY:
            return EasyCluster(spec)
        return QuotaCluster(spec, spreads=policy.kind == Kind.QUOTA_SPREAD)

    def loop(self, policy: Policy, trace: Trace) -> Loop:
        """A run of a trace under a policy, at its beginning."""
        cluster, tasks = self.cluster(policy), self.tasks(trace, policy)
        options = self.options
        if isinstance(cluster, QueuedCluster):
            queueing = Queueing(
                QUEUES[policy.kind], policy.over_quota is OverQuota.OPPORTUNISTIC, options.limit_factor,
                options.unlimited_share, options.seed,
            )  # fmt: skip
            return QueuedLoop(cluster, tasks, self.changes, queueing, options.grace_s, options.every_s)
        if isinstance(cluster, EasyCluster):
            limits = Queueing(
                limit_factor=options.limit_factor, unlimited_share=options.unlimited_share, seed=options.seed
            )
            return EasyLoop(cluster, tasks, self.changes, limits, options.grace_s, options.every_s)
        return Loop(cluster, tasks, self.changes, self.manner(policy), options.every_s)

    @property
    def has_queues(self) -> bool:
        """True if jobs wait in queues under any policy."""
        return any(policy.kind in QUEUES for policy in self.policies)

    def manner(self, policy: Policy) -> Manner:
        """The way in which a policy queues and evicts tasks."""
        return Manner(self.options.grace_s, policy.has_backfill, policy.over_quota is OverQuota.OPPORTUNISTIC)

    def tasks(self, trace: Trace, policy: Policy | None = None) -> list[Task]:
        """Fresh tasks of a trace's jobs, ascending by place; with the checkpoints of a policy that has its own."""
        found = [
            task for number, job in enumerate(trace.jobs) for task in tasks_of(job, number, self.tenants[job.tenant])
        ]
        if policy is not None and policy.checkpoint_s is not None:
            for task in found:
                task.checkpoint_s = policy.checkpoint_s
        return found


def make_plan(config: Path, trace_path: Path, options: Options) -> Plan:
    """Read all files and check the options. UserError says what is wrong, and where."""
    _check(options)
    spec, main = load_cluster(config), _input(config)
    trace = read_trace(trace_path, options.trace_format, Reading(node_leaf_cells=node_size(spec)))
    if not trace.jobs:
        raise UserError(f"{trace_path}: no job in the trace")
    policies, specs = _policies(spec, main, options)
    trace = with_known_models(trace, specs.values())
    changes = parse_changes(options.what)
    _check_queued(changes, policies)
    for name, own in specs.items():
        _check_cells(changes, own, name)
    return Plan(
        options=options,
        policies=policies,
        specs=specs,
        changes=tuple(changes),
        change_files=tuple(_input(Path(change.file)) if change.file else None for change in changes),
        trace=_prepared(trace, options),
        trace_file=_trace_input(trace_path, trace),
        tenants=assigned(trace, spec, options.tenants),
    )


def node_size(spec: ClusterSpec) -> int:
    """Leaf cells of the largest node: it shapes gangs of which a trace tells the sum only."""
    return max(chain.leaf_count(chain.node_level) for chain in build_topology(spec).chains)


def _check(options: Options) -> None:
    if not 0 <= options.opportunistic_share <= 1:
        raise UserError(f"--opportunistic-share {options.opportunistic_share:g}: expected a number from 0 to 1")
    if not 0 <= options.unlimited_share <= 1:
        raise UserError(f"--without-limit {options.unlimited_share:g}: expected a number from 0 to 1")
    if options.limit_factor and options.limit_factor < 1:
        raise UserError(f"--limits {options.limit_factor:g}: expected a number from 1 up, or 0 for no limits")
    if options.every_s <= 0:
        raise UserError("--every: expected more than 0 seconds")
    if not 0 <= options.draws <= 10_000:
        raise UserError(f"--resample {options.draws}: expected a number from 0 to 10000")


def _check_cells(changes: Sequence[Change], spec: ClusterSpec, policy: str) -> None:
    """Raise UserError if a change names cells that are not there at its time. Cost O(cells) for each configuration."""
    topology = build_topology(spec)
    for change in changes:
        if change.added and change.added[0].cell_type not in {chain.name for chain in topology.chains}:
            raise UserError(f"--what {change.text!r}: {change.added[0].cell_type!r} is no type of top cells")
        for cell in change.cells:
            try:
                nodes_below(topology, cell)
            except UserError as error:
                raise UserError(f"--what {change.text!r}, under {policy}: {error}") from error
        present = change.configuration(spec)
        if present is not None:
            spec, topology = present, build_topology(present)


def _check_queued(changes: Sequence[Change], policies: Sequence[Policy]) -> None:
    """Queues of a simulation know changes of health alone."""
    queued = [policy.name for policy in policies if policy.kind in QUEUES or policy.kind == Kind.EASY]
    for change in changes:
        if queued and not change.cells:
            expected = "expected fail, drain, cordon or heal, or no policy with queues"
            raise UserError(f"--what {change.text!r}: under {queued[0]}, {expected}")


def _policies(spec: ClusterSpec, main: Input, options: Options) -> tuple[tuple[Policy, ...], dict[str, ClusterSpec]]:
    policies = [_policy("hived", Kind.HIVED, main, spec, options)]
    specs = {"hived": spec}
    for text in dict.fromkeys(options.against):
        policy, own = _against(text, main, spec, options, specs)
        policies.append(policy)
        specs[policy.name] = own
    policies.sort(key=lambda policy: policy.kind != Kind.PRIVATE)
    return tuple(policies), specs


def _against(
    text: str, main: Input, spec: ClusterSpec, options: Options, taken: dict[str, ClusterSpec]
) -> tuple[Policy, ClusterSpec]:
    """The policy that a text names, and its configuration."""
    if text.partition(":")[0] == LENDING:
        return _lending(text, main, spec, options), spec
    if is_queue(text):
        return _queued(text, main, spec, options), spec
    if text in set(BASELINES):
        return _policy(text, Kind(text), main, spec, options), spec
    if not Path(text).is_file():
        known = ", ".join((*BASELINES, LENDING, *QUEUES))
        raise UserError(f"--against {text!r}: expected {known} or the file of a configuration")
    configuration, own = _input(Path(text)), load_cluster(text)
    return _policy(_free_name(Path(text), taken), Kind.HIVED, configuration, own, options), own


def _policy(name: str, kind: str, configuration: Input, spec: ClusterSpec, options: Options) -> Policy:
    over_quota = options.over_quota if kind == Kind.HIVED else OverQuota.WAIT
    has_backfill = options.has_backfill or kind == Kind.EASY
    return Policy(name, kind, configuration, int(spec.rules), has_backfill, over_quota)


def _lending(text: str, main: Input, spec: ClusterSpec, options: Options) -> Policy:
    """The configuration, its guaranteed jobs over quota on idle cells of others."""
    _, has_checkpoints, words = text.partition(":")
    checkpoint_s = parse_duration(words, f"--against {text}") if has_checkpoints else None
    policy = _policy(text.replace(":", "-"), Kind.HIVED, main, spec, options)
    return replace(policy, over_quota=OverQuota.OPPORTUNISTIC, checkpoint_s=checkpoint_s)


def _queued(text: str, main: Input, spec: ClusterSpec, options: Options) -> Policy:
    name, served, borrows = queueing_named(text)
    policy = _policy(text.replace(":", "-"), name, main, spec, options)
    over_quota = OverQuota.OPPORTUNISTIC if borrows else OverQuota.WAIT
    return replace(policy, has_backfill=not served.row.blocks, over_quota=over_quota)


def _free_name(path: Path, taken: dict[str, ClusterSpec]) -> str:
    stem = "".join(sign if sign.isalnum() or sign in "-_." else "-" for sign in path.stem) or "other"
    name, number = stem, 2
    while name in taken or name in set(BASELINES) or name.startswith((LENDING, *QUEUES)):
        name, number = f"{stem}-{number}", number + 1
    return name


def _prepared(trace: Trace, options: Options) -> Trace:
    source = random.Random(f"opportunistic/{options.seed}")
    jobs: list[Job] = []
    for job in within_bounds(trace.jobs):
        priority = job.priority
        if priority != OPPORTUNISTIC_PRIORITY and source.random() < options.opportunistic_share:
            priority = OPPORTUNISTIC_PRIORITY
        checkpoint_s = job.checkpoint_s if options.checkpoint_s is None else options.checkpoint_s
        jobs.append(replace(job, priority=priority, checkpoint_s=checkpoint_s))
    return replace(trace, jobs=tuple(jobs))


def _input(path: Path) -> Input:
    try:
        return Input(path.name, hashlib.sha256(path.read_bytes()).hexdigest())
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error


def _trace_input(path: Path, trace: Trace) -> Input:
    """The file of the trace; of standard input, which is read once, the SHA-256 of the jobs as JSON."""
    if str(path) != "-":
        return _input(path)
    return Input("-", hashlib.sha256(msgspec.json.encode(trace.jobs)).hexdigest())


def names(policies: Sequence[Policy]) -> list[str]:
    """The names of policies, in the order in which they run."""
    return [policy.name for policy in policies]


CONFIG, TRACE = "hivedscheduler.yaml", "trace."
AGAINST = (*(kind.value for kind in BASELINES), LENDING, f"{LENDING}:30m")
"""Policies beside a folder's configuration, unless others are named."""


def folder_of(name: str) -> Path:
    """A folder by its path, else the example of that name that comes with hived. UserError if there is neither."""
    if (path := Path(name)).is_dir():
        return path
    for examples in _places():
        if (found := examples / path.name).is_dir():
            return found
    raise UserError(f"{name}: no such folder, and no example of that name; examples are {', '.join(_names())}")


def config_in(folder: Path) -> Path:
    """The configuration of a folder. UserError if there is none."""
    if not (found := folder / CONFIG).is_file():
        raise UserError(f"{folder}: has no {CONFIG}; name a configuration with --config")
    return found


def trace_in(folder: Path) -> Path:
    """The trace of a folder: its one file `trace.*`. UserError if there is none, or several."""
    found = sorted(path for path in folder.glob(f"{TRACE}*") if path.is_file())
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise UserError(f"{folder}: expected one file {TRACE}*, found {names}; name a trace with --trace")
    return found[0]


def _places() -> list[Path]:
    """Return the folders of examples: beside this module in an installed package, else in the checkout."""
    here = Path(__file__).resolve()
    return [here.parent / "cases", here.parents[2] / "examples"]


def _names() -> list[str]:
    return sorted({path.parent.name for place in _places() for path in place.glob(f"*/{TRACE}*")})
