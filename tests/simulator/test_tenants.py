"""Tenants of a trace get virtual clusters, and models that no cluster has are ignored."""

import msgspec
import pytest

from hived.values.errors import UserError
from hived_simulator.tenants import IGNORED, assigned, with_known_models
from hived_simulator.traces.jobs import Trace
from tests.simulator.builders import NODE, cluster_of, job

SPEC = cluster_of(3, a={NODE: 1}, b={NODE: 3}, c={NODE: 2})
TRACE = Trace("t", (job("1", "x", 0, 10, (1, 4)), job("2", "y", 0, 30, (1, 4)), job("3", "b", 0, 1, (1, 1))))


def test_names_that_agree_need_no_words() -> None:
    assert assigned(TRACE, SPEC, ["x=a", "y=c"]) == {"x": "a", "y": "c", "b": "b"}


def test_the_largest_tenant_has_the_largest_virtual_cluster() -> None:
    assert assigned(TRACE, SPEC, ["auto"]) == {"y": "b", "x": "c", "b": "a"}


def test_tenants_beyond_the_virtual_clusters_go_where_there_is_least_work() -> None:
    more = Trace("t", (*TRACE.jobs, job("4", "z", 0, 0.1, (1, 1))))
    assert assigned(more, SPEC, ["auto"])["z"] == "a"


def test_a_star_stands_for_all_tenants_without_a_virtual_cluster_of_their_name() -> None:
    assert assigned(TRACE, SPEC, ["y=a", "*=c"]) == {"x": "c", "y": "a", "b": "b"}


def test_jobs_without_a_tenant_are_of_the_default_virtual_cluster() -> None:
    nameless = Trace("t", (*TRACE.jobs[2:], job("4", "", 0, 1, (1, 1))))
    assert assigned(nameless, cluster_of(2, b={NODE: 1}, default={NODE: 1}), []) == {"": "default", "b": "b"}


def test_one_tenant_and_one_virtual_cluster_belong_together() -> None:
    assert assigned(Trace("t", TRACE.jobs[:1]), cluster_of(1, only={NODE: 1}), []) == {"x": "only"}


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ([], "without a virtual cluster: 'x', 'y'; the configuration has 'a', 'b', 'c'.* --tenants auto"),
        (["x"], "--tenants 'x': expected TENANT=VC"),
        (["x=d"], "the configuration has no virtual cluster 'd'"),
        (["w=a"], "the trace has no tenant 'w'; it has 'b', 'x', 'y'"),
    ],
)
def test_who_has_none_is_told(written: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        assigned(TRACE, SPEC, written)


def test_jobs_without_a_tenant_are_told_apart() -> None:
    nameless = Trace("t", (job("1", "", 0, 1, (1, 1)),))
    with pytest.raises(UserError, match=r"name no tenant: .* with --certify-tenants =VC, one of 'a', 'b', 'c'"):
        assigned(nameless, SPEC, [], "--certify-tenants")
    assert assigned(nameless, SPEC, ["=b"]) == {"": "b"}


SMALL = cluster_of(1, a={NODE: 1})


def trace_of(*models: str) -> Trace:
    jobs = (msgspec.structs.replace(job(str(n), "a", 0, 1, (1, 1)), leaf_type=each) for n, each in enumerate(models))
    return Trace("t", tuple(jobs), None, ("kept",))


def test_models_that_no_cell_has_are_ignored_and_said() -> None:
    found = with_known_models(trace_of("a100", "", "T4"), [SMALL])
    assert {each.leaf_type for each in found.jobs} == {""}
    assert found.notes[0] == "kept"
    assert found.notes[1].startswith(f"{IGNORED}: the trace has T4, a100, and the configuration only ")


def test_a_trace_with_a_known_model_or_with_none_stays() -> None:
    for trace in (trace_of("GPU", "T4"), trace_of("", "")):
        assert with_known_models(trace, [SMALL]) == trace
