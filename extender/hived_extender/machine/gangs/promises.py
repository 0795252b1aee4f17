"""Places that an earlier leader decided for pods of a gang, and wrote onto those of their mates that it had bound.

They are read at all times, as another replica may lead before all of them are kept, and given when a term begins. A pod
speaks for its own gang and those that start together with it, and for no other. Not thread-safe.
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
    """A pod's place, by the uid and gang of the bound pod that has it."""

    place: Promise
    by: str
    gang: GangKey


class Promises:
    """See the module."""

    def __init__(self, pods: PodTable, gangs: Gangs) -> None:
        self._pods = pods
        self._gangs = gangs
        self._places: dict[str, _Promised] = {}

    def take(self, record: PodRecord, reading: Reading) -> None:
        """A bound pod has the places of its gang that had not been confirmed by then. UserError if they are no good."""
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
        """The pod is bound, or gone."""
        self._places.pop(uid, None)

    def keep_all(self, core: Core) -> None:
        """Give the waiting pods their places, where these are still to be had."""
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
