"""The fate of running work when the configuration changes, on an embedded cluster, case by case."""

from collections.abc import Iterator

import pytest

from tests.reconfiguration.cases import load_base, load_cases
from tests.reconfiguration.cluster import EmbeddedCaseCluster
from tests.reconfiguration.runner import Runner

BASE = load_base()
CASES = load_cases()


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    """One for all cases: each begins with a cluster without pods and with the base configuration pushed again."""
    # The nodes have their devices before a configuration says so, as in a real cluster.
    with EmbeddedCaseCluster(BASE.text, BASE.changed(CASES["grow-node"])) as cluster:
        yield Runner(cluster, BASE)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", CASES)
def test_a_change_does_to_everybody_what_was_planned(runner: Runner, name: str) -> None:
    case = CASES[name]
    stays = bool(case.refusals) or case.back is not None
    assert runner.expect_as_planned(name, case) == (BASE.text if stays else BASE.changed(case))
