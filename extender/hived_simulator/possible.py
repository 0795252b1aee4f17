"""Whether a task can run at all, asked of a cluster on which nobody runs."""

from hived.decisions import Wait
from hived.errors import UserError
from hived.events import ScheduleRequested
from hived.scheduler import handle
from hived.state import State
from hived_simulator.clusters import Waits
from hived_simulator.requests import pod_of, pod_spec
from hived_simulator.tasks import Cause, Shape, Task


class Possible:
    """Answers for each kind of task, by an empty and healthy state, which stays so."""

    def __init__(self, empty: State) -> None:
        self._empty = empty
        self._known: dict[tuple[str, int, Shape], Waits | None] = {}

    def refusal(self, task: Task) -> Waits | None:
        """Why a task can never run; None if it can. Cost: a search for each kind of task."""
        key = (task.vc, task.priority, task.shape)
        if key not in self._known:
            self._known[key] = self._ask(task)
        return self._known[key]

    def _ask(self, task: Task) -> Waits | None:
        pod = pod_of(task, pod_spec(task, task.priority, is_lazy=False), 0)
        try:
            decision = handle(self._empty, ScheduleRequested(pod))
        except UserError as error:
            return Waits(Cause.REFUSED, str(error))
        return Waits(Cause.REFUSED, decision.reason) if isinstance(decision, Wait) else None
