"""Jobs of a trace with models of GPU that the configuration does not have."""

import msgspec

from hived_simulator.tenants import IGNORED, with_known_models
from hived_simulator.traces.jobs import Trace
from tests.simulator.builders import NODE, cluster_of, job

SPEC = cluster_of(1, a={NODE: 1})


def trace_of(*models: str) -> Trace:
    jobs = (msgspec.structs.replace(job(str(n), "a", 0, 1, (1, 1)), leaf_type=each) for n, each in enumerate(models))
    return Trace("t", tuple(jobs), None, ("kept",))


def test_models_that_no_cell_has_are_ignored_and_said() -> None:
    found = with_known_models(trace_of("a100", "", "T4"), [SPEC])
    assert {each.leaf_type for each in found.jobs} == {""}
    assert found.notes[0] == "kept"
    assert found.notes[1].startswith(f"{IGNORED}: the trace has T4, a100, and the configuration only ")


def test_a_trace_with_a_known_model_or_with_none_stays() -> None:
    for trace in (trace_of("GPU", "T4"), trace_of("", "")):
        assert with_known_models(trace, [SPEC]) == trace
