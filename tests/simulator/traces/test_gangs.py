"""Pods that were seen one by one are put together to jobs, and shapes are read from text."""

import pytest

from hived_simulator.traces.fields import Unusable, from_text, to_text
from hived_simulator.traces.jobs import Pods
from hived_simulator.traces.kubernetes import SeenPod, jobs_of


def test_a_gang_has_as_many_pods_as_ran_at_once() -> None:
    pods = [
        SeenPod("g-0", "t", 8, 0.0, 10.0, 100.0, gang="g"),
        SeenPod("g-1", "t", 8, 1.0, 12.0, 50.0, gang="g"),
        SeenPod("g-1", "t", 8, 50.0, 50.0, 110.0, gang="g"),
        SeenPod("g-boss", "t", 1, 1.0, 11.0, 110.0, gang="g"),
        SeenPod("alone", "t", 2, 5.0, 6.0, 7.0),
    ]
    gang, alone = jobs_of(pods)
    assert (gang.name, gang.submitted_s, gang.started_s, gang.duration_s) == ("g", 0.0, 10.0, 100.0)
    assert gang.pods == (Pods(1, 1), Pods(2, 8))
    assert (alone.name, alone.pods, alone.duration_s) == ("alone", (Pods(1, 2),), 1.0)


def test_a_shape_that_a_pod_tells_counts() -> None:
    (job,) = jobs_of([SeenPod("g-0", "t", 8, 0.0, 10.0, 100.0, gang="g", shape=(Pods(4, 8),))])
    assert job.pods == (Pods(4, 8),)


@pytest.mark.parametrize("text", ["1", "2x8", "3x1+2", "4+2x8"])
def test_a_shape_is_read_as_it_is_written(text: str) -> None:
    assert to_text(from_text(text)) == text


@pytest.mark.parametrize("text", ["", "0", "0x8", "2x", "x8", "-1", "1.5", "9999999x9999999", "2x8,4"])
def test_what_is_no_shape_is_unusable(text: str) -> None:
    with pytest.raises(Unusable):
        from_text(text)
