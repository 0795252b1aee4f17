"""A sample of the cluster every few seconds: for the history, and for metrics that are too dear for each question.

Outside the lock but for a copy of the cells, and for short looks at pods that wait. Cells are copied and counted only
if the state has changed since the last sample. A replica that does not lead samples nothing, and its metrics show no
earlier sample; one that begins to lead takes in whatever a former leader has written to the file.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable

from hived.cells.topology import NO_CELL
from hived.life.status import CellStatus
from hived.values.errors import HivedError
from hived.values.specs import Rules
from hived_extender.api.waiting import FreeCells
from hived_extender.insight.free_cells import free_cells
from hived_extender.insight.history import HistoryRings, Key
from hived_extender.insight.waiting_causes import waiting_causes
from hived_extender.kube.clocks import CLOCK, wall_s
from hived_extender.kube.metrics import Sampled, Tally
from hived_extender.service.service import Service

log = logging.getLogger(__name__)

EVERY_S = 15.0
"""Between two samples: four make a row of the history."""


class Sampler:
    """See the module. `now` has seconds since 1970."""

    def __init__(self, service: Service, history: HistoryRings, *, now: Callable[[], float] = wall_s) -> None:
        self._service, self._history, self._now = service, history, now
        self._sampled = Sampled()
        self._seen = ""
        self._cells: Counter[Key] = Counter()
        self._free: dict[tuple[str, str, str], int] = {}
        self._counted: dict[str, Tally] = {}
        self._has_led = False
        self._has_failed = False
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="sampling", daemon=True)
        service.metrics.observe_samples(lambda: self._sampled)

    def start(self) -> None:
        """Take samples from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Take no samples any more, and write what is not written yet."""
        self._is_stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._history.flush()

    def look(self) -> None:
        """Take a sample, if this replica leads. Cost: see `free_cells` and `waiting_causes`."""
        CLOCK.tell_jumps()
        if not self._service.is_ready:
            if self._has_led:
                self._history.flush()
            self._sampled, self._has_led, self._seen = Sampled(), False, ""
            return
        if not self._has_led:
            self._history.load()
            self._has_led = True
        reader = self._service.reader
        if reader.version() != self._seen:
            rules = reader.rules()
            self._seen, cells = reader.versioned_cells()
            self._count(cells, free_cells(cells, releases_doomed=rules is Rules.BETTER))
        waiting = waiting_causes(self._service)
        sample: Counter[Key] = Counter(self._cells)
        for (vc, cause), count in waiting.items():
            sample["waiting_pods", vc, cause] = count
        self._add_tallies(sample)
        self._history.record(self._now(), sample)
        self._sampled = Sampled(free_cells=self._free, waiting_pods=dict(waiting))

    def _follow(self) -> None:
        while not self._is_stopping.is_set():
            try:
                self.look()
                self._has_failed = False
            except HivedError:  # the term has ended meanwhile, or the service has stopped and said so
                self._seen = ""
            except Exception:
                if not self._has_failed:
                    log.critical("a sample has failed, and others are tried", exc_info=True)
                self._has_failed = True
            self._is_stopping.wait(EVERY_S)

    def _count(self, cells: CellStatus, rows: list[FreeCells]) -> None:
        """The part of a sample that follows from the cells; pinned cells count with the others."""
        topology, found = cells.topology, Counter[Key]()
        free: Counter[tuple[str, str, str]] = Counter()
        for row in rows:
            free[row.vc, row.chain, row.level] += row.free
            if row.leaves == 1 and row.level == topology.chains[topology.chain_index[row.chain]].types[0]:
                found["leaf_cells_promised", row.vc] += row.promised
                found["leaf_cells_used", row.vc] += row.in_use
                found["leaf_cells_short", row.vc] += row.bad
                found["leaf_cells_borrowed", row.vc] += row.borrowed
        for key, count in free.items():
            found["free_cells", *key] = count
        for forest in topology.forests:
            if forest.vc == NO_CELL:
                size = forest.tree_count * topology.chains[forest.chain].leaf_count(forest.top_level)
                first = forest.bases[1]
                found["leaf_cells",] += size
                found["leaf_cells_bad",] += int((cells.bad[first : first + size] != 0).sum())
        self._cells, self._free = found, dict(free)

    def _add_tallies(self, sample: Counter[Key]) -> None:
        """Starts and preemptions since the last sample."""
        for vc, tally in list(self._service.metrics.tallies.items()):
            before = self._counted.get(vc, Tally())
            now = self._counted[vc] = Tally(
                tally.started_pods, tally.start_delay_s, tally.preempted_pods, tally.preempted_gpu_hours
            )
            events = {
                "started_pods": now.started_pods - before.started_pods,
                "start_delay_seconds": now.start_delay_s - before.start_delay_s,
                "preempted_pods": now.preempted_pods - before.preempted_pods,
                "preempted_gpu_hours": now.preempted_gpu_hours - before.preempted_gpu_hours,
            }
            for metric, count in events.items():
                if count:
                    sample[metric, vc] = count  # type: ignore[assignment]  # keys above are names of metrics
