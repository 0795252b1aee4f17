"""The machine alone keeps its promises, whatever it is told and however its effects end.

`machine_run` says what that is; `make soak` has longer runs.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from hypothesis.strategies import DataObject

from tests.property.choices import Choices, Drawn
from tests.property.examples import examples
from tests.property.machine_run import OPERATIONS, MachineRun
from tests.property.soak import STEPS_PER_MACHINE_RUN, run_machine


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", range(examples(32)))
def test_a_long_random_run_of_the_machine_breaks_no_rule(seed: int, tmp_path: Path) -> None:
    assert len(run_machine(seed, STEPS_PER_MACHINE_RUN, tmp_path).splitlines()) == STEPS_PER_MACHINE_RUN


class AnyStimuli(RuleBasedStateMachine):
    """A machine and its twin; every rule is one thing that happens to both."""

    @initialize(data=st.data())
    def start(self, data: DataObject) -> None:
        self.run = MachineRun(Choices(Drawn(data)))

    @rule(data=st.data(), kind=st.sampled_from([kind for kind, weight in OPERATIONS.items() for _ in range(weight)]))
    def happen(self, data: DataObject, kind: str) -> None:
        self._check(data, lambda: self.run.do(kind))

    @rule(data=st.data())
    def come_to_rest(self, data: DataObject) -> None:
        self._check(data, self.run.finish)

    def _check(self, data: DataObject, action: Callable[[], None]) -> None:
        self.run.choices = Choices(Drawn(data))
        try:
            action()
        except Exception:
            note(str(self.run))
            raise


AnyStimuli.TestCase.settings = settings(
    max_examples=examples(60), stateful_step_count=60, suppress_health_check=list(HealthCheck)
)
test_the_machine_breaks_no_rule_whatever_it_is_told = pytest.mark.long(AnyStimuli.TestCase)


class AnyFewStimuli(AnyStimuli):
    """The same with fewer examples."""


AnyFewStimuli.TestCase.settings = settings(
    AnyStimuli.TestCase.settings, max_examples=examples(12), stateful_step_count=40
)
test_the_machine_breaks_no_rule_in_a_short_time = AnyFewStimuli.TestCase
