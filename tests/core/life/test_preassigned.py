"""The operations that one failing node sets off are those that the module's docstring shows (rules 10.5 to 10.8)."""

from collections.abc import Callable
from typing import Any

import pytest

from hived.cells.state import State
from hived.cells.topology import IntArray
from hived.life import preassigned
from hived.values.specs import ClusterSpec
from tests.core.builders import healthy_state, pod, quota, rack_cluster, run, set_nodes
from tests.core.callable_kernels import IS_INTERPRETED

NAMES = {
    preassigned.BIND: "BIND", preassigned.UNBIND: "UNBIND",
    preassigned.ALLOCATE: "ALLOCATE", preassigned.RELEASE: "RELEASE",
}  # fmt: skip


def cluster() -> ClusterSpec:
    """The cluster of the worked example in docs/rules.md."""
    return rack_cluster(quota("A", {"RACK": 1}), quota("B", {"RACK.NODE": 1}), quota("C", {"RACK.NODE": 1}))


def documented() -> list[list[str]]:
    """The words of each line of the two traces, by trace."""
    text = str(preassigned.__doc__).split("    operation", 1)[1]
    first, second = text.split("\n\n", 1)[0], text.split("    operation", 1)[1].split("\n\n", 1)[0]
    return [[" ".join(line.split()) for line in trace.splitlines()[1:]] for trace in (first, second)]


def trace(state: State, act: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each frame that begins, and each level that one takes or gives back, with `left` of racks, nodes and GPUs."""
    lines: list[str] = []

    def note(text: str) -> None:
        lines.append(" ".join([text, *map(str, state.cells.left[:0:-1])]))

    push, step = preassigned._push, preassigned._allocate_step

    def noted_push(stack: IntArray, depth: int, operation: int, subject: int, vc: int, is_doomed: int) -> None:
        push(stack, depth, operation, subject, vc, is_doomed)
        is_level = operation in (preassigned.BIND, preassigned.UNBIND)
        name = state.topology.level_types[subject] if is_level else state.topology.address(subject)
        note(f"{NAMES[operation]} {name}" + ("" if is_level else f" for {state.topology.vc_names[vc]}"))

    def noted_step(*arguments: Any) -> Any:
        found = step(*arguments)
        note(f"- {state.topology.level_types[found[1]]}")
        return found

    with monkeypatch.context() as patched:
        patched.setattr(preassigned, "_push", noted_push)
        patched.setattr(preassigned, "_allocate_step", noted_step)
        act()
    return lines


@pytest.mark.skipif(not IS_INTERPRETED, reason="frames of compiled kernels cannot be observed")
def test_a_node_that_fails_dooms_its_rack_as_the_docstring_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    state = healthy_state(cluster())
    run(state, pod("solo", vc="B"))
    assert trace(state, lambda: set_nodes(state, "n3", is_healthy=False), monkeypatch) == documented()[0]


@pytest.mark.skipif(not IS_INTERPRETED, reason="frames of compiled kernels cannot be observed")
def test_a_pod_that_splits_the_last_good_rack_dooms_the_bad_one_as_the_docstring_shows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = healthy_state(cluster())
    set_nodes(state, "n3", is_healthy=False)
    assert trace(state, lambda: run(state, pod("solo", vc="B")), monkeypatch) == documented()[1]
