"""Tables of Slurm clusters that were published with one row for each job: Helios (Venus and others) and Acme.

Shapes follow from `gpu_num` on `node_num` nodes, as evenly as they go. Helios has virtual clusters, and local times
without a zone. Acme has no tenants, and times with a zone. In Acme's Kalos `duration` has the waiting in it: seconds
are taken from start to end, and from `duration` only where one of the two is missing.
"""

from hived_traces.draft import Draft
from hived_traces.fields import NOTHING, Unusable, count, duration, instant, positive_span, spread
from hived_traces.formats.format import Format
from hived_traces.jobs import Job
from hived_traces.sources import Source
from hived_traces.tables import Fields, Table, has_columns

COLUMNS = ("job_id", "user", "gpu_num", "node_num", "state", "submit_time", "start_time", "end_time", "duration")


def _is_helios(head: str) -> bool:
    return has_columns(head, (*COLUMNS, "vc"))


def _is_acme(head: str) -> bool:
    return has_columns(head, (*COLUMNS, "type"))


def _read_helios(source: Source, draft: Draft) -> None:
    draft.note_zone()
    _read(source, draft, "vc")


def _read_acme(source: Source, draft: Draft) -> None:
    if not draft.options.tenant_column:
        draft.note("tenants are not given: user or type can stand for them")
    _read(source, draft, "")


def _read(source: Source, draft: Draft, usual_tenant: str) -> None:
    def to_job(fields: Fields) -> Job:
        name, user, gpus, nodes, state, submit, start, end, said, tenant = fields
        leaves = count(gpus, "gpu_num")
        if not leaves:
            raise Unusable("asks for no GPU")
        started = None if start in NOTHING else instant(start, "start_time", draft.zone)
        if started is None:
            raise Unusable("never ran")
        if end in NOTHING:
            draft.remark("jobs without an end, whose duration is taken as given")
            ran = duration(said)
        else:
            ran = positive_span(instant(end, "end_time", draft.zone) - started, "end_time - start_time")
            if said not in NOTHING and abs(duration(said) - ran) > 1:
                draft.remark("jobs whose duration is not that from start to end, which is taken")
        return Job(
            name,
            tenant,
            instant(submit, "submit_time", draft.zone),
            ran,
            spread(leaves, count(nodes, "node_num") if nodes not in NOTHING else 1),
            user=user,
            started_s=started,
            status=state,
        )

    table = Table(source, draft, COLUMNS)
    draft.take(table.rows(*COLUMNS, table.tenant_column(usual_tenant)), to_job)


HELIOS = Format("helios", "Helios: Venus, Earth, Saturn, Uranus", _is_helios, _read_helios)
ACME = Format("acme", "Acme: Seren, Kalos", _is_acme, _read_acme)
