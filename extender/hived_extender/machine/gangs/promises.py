"""Places that an earlier leader decided for a gang, annotated on the pods that it had bound (rule 26.10).

They are read at all times, as another leader may come before all are used, and given when a term begins. Not
thread-safe.
"""

import logging

import msgspec
from msgspec.structs import replace

from hived.values.errors import UserError
from hived_extender.jobs.bind_info import Promise, promise
from hived_extender.jobs.kinds.description import GangKey
from hived_extender.jobs.readings import Reading, ready
from hived_extender.machine.core import Core
from hived_extender.machine.gangs.rounds import single_request
from hived_extender.machine.gangs.table import Gangs
from hived_extender.machine.pods import Place, PodRecord, PodState, PodTable

log = logging.getLogger(__name__)


class _Promised(msgspec.Struct, frozen=True):
    """A pod's place, with the uid and gang of the bound pod that has it in its annotations."""

    place: Promise
    by: str
    gang: GangKey


class Promises:
    """Places for waiting pods, by the annotations of their bound mates."""

    def __init__(self, pods: PodTable, gangs: Gangs) -> None:
        self._pods = pods
        self._gangs = gangs
        self._places: dict[str, _Promised] = {}

    def take(self, record: PodRecord, reading: Reading) -> None:
        """Read the places of mates that a bound pod's annotations have. UserError if invalid."""
        gang = record.gang
        if gang is None:
            return
        for one in ready(reading.peers):
            peer = self._pods.get(one.uid)
            if not self._pods.has_ended(one.uid) and (peer is None or peer.state is not PodState.BOUND):
                self._places[one.uid] = _Promised(one, record.uid, gang)
                if peer is None or not (peer.is_of_dialect and peer.state.is_placed):
                    continue  # one that has left the gang may have got a place in a larger group since
                if promise(peer.uid, peer.place.info) == one:
                    peer.place = replace(peer.place, promised_by=record.uid)

    def drop(self, uid: str) -> None:
        """Forget the place of a pod that is bound or gone."""
        self._places.pop(uid, None)

    def place_all(self, core: Core) -> None:
        """Give the waiting pods their places, if still free."""
        self._places = {uid: one for uid, one in self._places.items() if self._pods.get(uid) is not None}
        for record in self._pods.without_node():
            promised = self._places.get(record.uid)
            if promised is not None and record.gang in self._gangs.together(promised.gang):
                self._keep(core, record, promised)

    def _keep(self, core: Core, record: PodRecord, promised: _Promised) -> None:
        place = promised.place
        ask = record.ask
        if ask is None:
            return
        if not place.node or not ask.leaf_cell_count:
            record.place = Place(promised_by=promised.by)
            self._pods.move(record, PodState.CLEARED)
            return
        request = single_request(record)
        try:
            core.adopt(request, place.bind_info, record.progress.times)
        except UserError as error:
            log.warning("promised place not kept", extra={"fields": {"pod": record.key, "reason": error.message}})
            return
        if not core.has_all_cells(request.spec.group.name):
            core.delete(request)
            return
        self._pods.place(record, request, place.bind_info, promised.by)
