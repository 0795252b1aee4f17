"""The metrics that Prometheus reads from `/metrics`.

Counters and histograms are touched as things happen; everything that can be read off the service's state is read when
Prometheus asks, so that it cannot drift. Each service has a registry of its own. Label values come from fixed sets or
from the configuration, never from pods: the number of series is bounded.
"""

import platform
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.metadata import version

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hived import __version__

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

SWITCH_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
START_BUCKETS_S = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0, 604_800.0)
FILTER_BUCKETS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)


class Gauges(msgspec.Struct, frozen=True):
    """The present state in numbers; keys are label values."""

    pods: Mapping[str, int]
    groups: Mapping[str, int]
    leaf_cells: Mapping[tuple[str, str], int]
    short_leaf_cells: Mapping[str, int]
    shared_short_cells: Mapping[tuple[str, str], int]
    lost_devices: Mapping[tuple[str, str], int]
    bad_node_count: int
    is_ready: bool
    is_healthy: bool


class Sampled(msgspec.Struct, frozen=True):
    """Numbers of the last sample of the cluster, too expensive to be counted at each question; keys are label values.

    Without a sample there are none.
    """

    free_cells: Mapping[tuple[str, str, str], int] = {}
    waiting_pods: Mapping[tuple[str, str], int] = {}


class QueueGauges(msgspec.Struct, frozen=True):
    """Queues in numbers; keys are label values. There are none where queues are off, or another replica leads."""

    jobs: Mapping[tuple[str, str], int] = {}
    oldest_wait_s: Mapping[tuple[str], float] = {}
    shares: Mapping[tuple[str], float] = {}


class Tally(msgspec.Struct):
    """Counts of one virtual cluster since the process began; delays in seconds."""

    started_pods: int = 0
    start_delay_s: float = 0.0
    preempted_pods: int = 0
    preempted_gpu_hours: float = 0.0


class Metrics:
    """The instruments of one service. Thread-safe.

    `tallies` has counts by virtual cluster, for readers that keep a history of them.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.tallies: dict[str, Tally] = {}
        counter, histogram = partial(Counter, registry=self.registry), partial(Histogram, registry=self.registry)
        self._decisions = counter(
            "hived_decisions", "Decisions on filter and preempt calls, by verb and outcome.", ["verb", "outcome"]
        )
        self._decisions_by_label: dict[tuple[str, str], Counter] = {}  # the lookup of labels costs more than the count
        self._filter_seconds = histogram(
            "hived_filter_seconds", "Time to decide one filter or preempt call.", buckets=FILTER_BUCKETS_S
        )
        self.binds = counter(
            "hived_binds", "Bindings written to the API server, by origin and outcome.", ["origin", "outcome"]
        )
        self.evictions = counter(
            "hived_evictions", "Victims of a preemption, by what became of an attempt to make them leave.", ["outcome"]
        )
        self.forced_bindings = counter("hived_forced_bindings", "Pods that were bound without kube-scheduler.")
        self.refused_places = counter(
            "hived_refused_places",
            "Places that were decided and then taken back, as kube-scheduler did not offer the node any more.",
        )
        self.recovery_failures = counter(
            "hived_recovery_failures", "Bound pods whose annotations could not be replayed."
        )
        self.watch_restarts = counter(
            "hived_watch_restarts",
            "Watches that broke and were taken up again, by resource and cause.",
            ["resource", "cause"],
        )
        self.record_failures = counter("hived_record_failures", "Operations that could not be written to the record.")
        self.dropped_connections = counter(
            "hived_dropped_connections",
            "Connections that were ended before their time, by port and reason.",
            ["port", "reason"],
        )
        self.looks_for_room = counter(
            "hived_looks_for_room",
            "Looks for room that the service could make by moving groups, by outcome.",
            ["outcome"],
        )
        self.events = counter("hived_events", "Events about pods, by outcome.", ["outcome"])
        self.conditions = counter("hived_conditions", "Conditions of pods, by outcome.", ["outcome"])
        self._make_configuration_instruments(counter, histogram)
        self._make_vc_instruments(counter, histogram)
        self.queue_admitted = counter(
            "hived_queue_admitted",
            "Jobs that a queue resumed, once cells for all of their pods were held.",
            ["queue"],
        )
        self.queue_reclaimed = counter(
            "hived_queue_reclaimed",
            "Jobs of a queue that were suspended, as others were entitled to their cells.",
            ["queue"],
        )

    def _make_configuration_instruments(
        self, counter: Callable[..., Counter], histogram: Callable[..., Histogram]
    ) -> None:
        """Those of configurations."""
        self.config_version = Gauge(
            "hived_config_version", "Version of the configuration in force.", registry=self.registry
        )
        self.rules = Gauge(
            "hived_rules", "Rules of decisions in force: 1 for hived, 2 for rules 2.", registry=self.registry
        )
        self.config_changes = counter(
            "hived_config_changes", "Other configurations, by what became of them.", ["outcome"]
        )
        self.config_switch_seconds = histogram(
            "hived_config_switch_seconds",
            "How long requests waited while another configuration came into force.",
            buckets=SWITCH_BUCKETS_S,
        )

    def _make_vc_instruments(self, counter: Callable[..., Counter], histogram: Callable[..., Histogram]) -> None:
        """Those of virtual clusters."""
        self._start_delay = histogram(
            "hived_start_delay_seconds",
            "How long pods waited from their creation until they were bound, by virtual cluster.",
            ["vc"],
            buckets=START_BUCKETS_S,
        )
        self._preempted_pods = counter(
            "hived_preempted_pods", "Pods that are gone because others needed their cells, by virtual cluster.", ["vc"]
        )
        self._preempted_gpu_hours = counter(
            "hived_preempted_gpu_hours", "Work that such pods lost, in leaf-cell hours, by virtual cluster.", ["vc"]
        )

    def observe(self, read_gauges: Callable[[], Gauges]) -> None:
        """From now on, show the numbers that this function returns."""
        self.registry.register(_GaugeCollector(read_gauges))

    def observe_samples(self, read_sampled: Callable[[], Sampled]) -> None:
        """From now on, show the numbers of the sample that this function returns."""
        self.registry.register(_FamiliesCollector(_SAMPLED, read_sampled))

    def observe_queues(self, read_gauges: Callable[[], QueueGauges]) -> None:
        """From now on, show the numbers of queues that this function returns."""
        self.registry.register(_FamiliesCollector(_QUEUES, read_gauges))

    def count_start(self, vc: str, delay_s: float) -> None:
        """A pod was bound, so long after it was created."""
        tally = self.tallies.setdefault(vc, Tally())
        tally.started_pods += 1
        tally.start_delay_s += delay_s
        self._start_delay.labels(vc).observe(delay_s)

    def count_preempted(self, vc: str, gpu_hours: float) -> None:
        """A pod is gone that had to leave, and so much work with it."""
        tally = self.tallies.setdefault(vc, Tally())
        tally.preempted_pods += 1
        tally.preempted_gpu_hours += gpu_hours
        self._preempted_pods.labels(vc).inc()
        self._preempted_gpu_hours.labels(vc).inc(gpu_hours)

    def count_decision(self, verb: str, outcome: str, seconds: float) -> None:
        """kube-scheduler has been answered, after so long."""
        decisions = self._decisions_by_label.get((verb, outcome))
        if decisions is None:
            decisions = self._decisions_by_label[verb, outcome] = self._decisions.labels(verb, outcome)
        decisions.inc()
        self._filter_seconds.observe(seconds)

    def text(self) -> bytes:
        """Everything in Prometheus' text format."""
        return generate_latest(self.registry)


_GAUGES = (
    ("hived_pods", "pods", ("state",), "Pods of ours, by state."),
    ("hived_groups", "groups", ("state",), "Affinity groups, by state."),
    ("hived_leaf_cells", "leaf_cells", ("vc", "use"), "Leaf cells of each virtual cluster, by use."),
    ("hived_short_leaf_cells", "short_leaf_cells", ("vc",),
     "Leaf cells of each virtual cluster's guarantee that are bad."),
    ("hived_shared_short_cells", "shared_short_cells", ("chain", "cell_type"),
     "Cells that virtual clusters are promised together and that cannot be had, by chain and cell type."),
    ("hived_lost_devices", "lost_devices", ("resource", "reason"),
     "Devices of configured nodes that cannot be had, by resource and reason: missing, pod, claim."),
    ("hived_bad_nodes", "bad_node_count", (), "Configured nodes that are not healthy."),
    ("hived_ready", "is_ready", (), "1 while this replica leads and answers."),
    ("hived_healthy", "is_healthy", (), "0 after an internal error."),
)  # fmt: skip
"""Name, field of `Gauges`, labels and help."""


class _GaugeCollector(Collector):
    def __init__(self, read_gauges: Callable[[], Gauges]) -> None:
        self._read_gauges = read_gauges

    def describe(self) -> Iterator[Metric]:
        """Nothing: naming the metrics beforehand would take the lock at registration."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """One family per field of `Gauges`, and the build."""
        gauges = self._read_gauges()
        for name, field, labels, text in _GAUGES:
            family = GaugeMetricFamily(name, text, labels=labels)
            values = getattr(gauges, field)
            for value, count in values.items() if labels else [((), int(values))]:
                family.add_metric([value] if isinstance(value, str) else value, count)
            yield family
        build = GaugeMetricFamily("hived_build_info", "Always 1.", labels=["version", "python", "numpy"])
        build.add_metric([__version__, platform.python_version(), version("numpy")], 1)
        yield build


_SAMPLED = (
    ("hived_free_cells", "free_cells", ("vc", "chain", "cell_type"),
     "Whole cells that guaranteed jobs of each virtual cluster could get at once, by chain and cell type."),
    ("hived_waiting_pods", "waiting_pods", ("vc", "cause"),
     "Pods that wait, by virtual cluster and cause."),
)  # fmt: skip
"""Name, field of `Sampled`, labels and help."""


_QUEUES = (
    ("hived_queued_jobs", "jobs", ("queue", "state"), "Jobs of each queue, by state: waiting, running, borrowed."),
    ("hived_queue_oldest_wait_seconds", "oldest_wait_s", ("queue",), "How long the oldest job of each queue waits."),
    ("hived_queue_share", "shares", ("queue",), "Dominant share of each queue beyond its guarantee, by weight."),
)
"""Name, field of `QueueGauges`, labels and help."""

Families = tuple[tuple[str, str, tuple[str, ...], str], ...]


class _FamiliesCollector(Collector):
    """One family per row of `families`, each from the field of that name."""

    def __init__(self, families: Families, read: Callable[[], Sampled | QueueGauges]) -> None:
        self._families, self._read = families, read

    def describe(self) -> Iterator[Metric]:
        """Nothing: their names are no other metric's."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """One family per row."""
        found = self._read()
        for name, field, labels, text in self._families:
            family = GaugeMetricFamily(name, text, labels=labels)
            for values, count in getattr(found, field).items():
                family.add_metric(values, count)
            yield family
