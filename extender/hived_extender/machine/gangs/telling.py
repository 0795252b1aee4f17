"""Tells the core which groups go on together, before it chooses victims (rule 8.14).

To the core each gang pod is a group of its own. It is told the limits of rule 26.12 before its next question, so that
many changes of a gang cost one message. Not thread-safe.
"""

from collections.abc import Iterable

from hived.cells.state import State
from hived.values.errors import UserError
from hived.values.specs import Gang as GangOfCore
from hived.values.specs import GangLimit, Rules
from hived_extender.jobs.kinds.description import GangKey
from hived_extender.machine.core import Core
from hived_extender.machine.gangs.gang import Gang, task_of
from hived_extender.machine.gangs.table import Gangs
from hived_extender.machine.pods import PodRecord


class TellingGangs:
    """Links between groups as last told to a state of the core."""

    def __init__(self, gangs: Gangs) -> None:
        self._gangs = gangs
        self._state: State | None = None
        self._told: dict[str, GangOfCore] = {}
        self._name_of: dict[GangKey, str] = {}

    def tell(self, core: Core) -> None:
        """Tell the core all changed gangs; all gangs, if it has another state.

        With `rules: hived` nothing is told. Cost O(pods of these gangs).
        """
        if core.state.spec.rules is not Rules.BETTER:
            return
        keys: Iterable[GangKey] = self._gangs.take_regrouped()
        if core.state is not self._state:
            self._state, self._told, self._name_of = core.state, {}, {}
            keys = [gang.key for gang in self._gangs.all()]
        todo = dict.fromkeys(keys)
        while todo:
            key = next(iter(todo))
            together = self._gangs.together(key)
            name = f"podgroup/{together[0]}"
            for other in together:
                todo.pop(other, None)
                before = self._name_of.get(other, name)
                if before != name:
                    todo |= {
                        one: None for one, known in self._name_of.items() if known == before and one not in together
                    }
                    self._put(core, GangOfCore(before, (), ()))
                self._name_of[other] = name
            gangs = [gang for other in together if (gang := self._gangs.get(other)) is not None]
            self._put(core, _as_told(name, gangs))
            if not gangs:
                for other in together:
                    self._name_of.pop(other, None)

    def _put(self, core: Core, gang: GangOfCore) -> None:
        if gang == self._told.get(gang.name, GangOfCore(gang.name, (), ())):
            return
        core.regroup(gang)
        if gang.groups:
            self._told[gang.name] = gang
        else:
            del self._told[gang.name]


def _as_told(name: str, gangs: Iterable[Gang]) -> GangOfCore:
    """Gangs that start together, as far as they have cells; without groups if there is at most one."""
    groups: dict[str, None] = {}
    limits: list[GangLimit] = []
    for gang in gangs:
        groups |= dict.fromkeys(_groups(gang.in_order()))
        staying = [record for record in gang.present() if record.state.is_placed]
        try:
            terms = gang.terms()
        except UserError:
            limits.append(_limit(staying, len(staying) + 1))
            continue
        limits.append(_limit(staying, terms.minimum))
        for task, minimum in sorted(terms.task_minimums.items()):
            limits.append(_limit([record for record in staying if task_of(record) == task], minimum))
    return GangOfCore(name, tuple(groups), tuple(limits)) if len(groups) > 1 else GangOfCore(name, (), ())


def _limit(staying: list[PodRecord], minimum: int) -> GangLimit:
    return GangLimit(tuple(dict.fromkeys(_groups(staying))), len(staying) - minimum)


def _groups(records: Iterable[PodRecord]) -> list[str]:
    return [
        record.request.spec.group.name
        for record in records
        if record.state.is_placed and record.request is not None and record.place.info is not None
    ]
