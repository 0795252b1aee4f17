"""Progress of pods told to the core: starts, checkpoints and leave to move. Not thread-safe."""

from hived.values.specs import NO_TIMES
from hived_extender.jobs.progress import read_progress
from hived_extender.jobs.wire import Pod
from hived_extender.machine.announcements import Announcements
from hived_extender.machine.core import Term
from hived_extender.machine.effects import Outbox
from hived_extender.machine.notices import Reason
from hived_extender.machine.pods import PodRecord


class Progressing:
    """Sets `PodRecord.progress`, tells the core of times, and owners of mistakes in their annotations."""

    def __init__(self, term: Term, outbox: Outbox, announcements: Announcements) -> None:
        self._term = term
        self._outbox = outbox
        self._announcements = announcements

    def seen(self, record: PodRecord, pod: Pod) -> None:
        """Take in a pod. A pod placed later tells its times then."""
        before, record.progress = record.progress, read_progress(pod, self._outbox.now.wall)
        times, mistakes, core = record.progress.times, record.progress.mistakes, self._term.core
        if core is None:
            return
        if mistakes and mistakes != before.mistakes:
            self._announcements.say(record, Reason.IGNORED_ANNOTATION, "; ".join(mistakes))
        if times != before.times and record.is_in_core and record.request is not None and record.place.info is not None:
            core.progress(record.request, times)

    def placed(self, record: PodRecord) -> None:
        """Tell the core the times of a newly placed pod. An earlier checkpoint counts, as after a restart."""
        times, core = record.progress.times, self._term.core
        if times != NO_TIMES and core is not None and record.request is not None:
            core.progress(record.request, times)
