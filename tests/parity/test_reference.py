"""Every decision recorded from the reference, taken again by the core: no record may differ."""

import importlib.util
import itertools
from pathlib import Path
from types import ModuleType

import pytest

from tests import places
from tests.parity.replays import replay_on_core, scenario_names

SHARED = places.SHARED / "parity"

pytestmark = pytest.mark.skipif(
    not (SHARED / "compare.py").is_file(),
    reason="the shared folder with the recorded decisions is not beside the checkout",
)


@pytest.fixture(scope="module")
def compare() -> ModuleType:
    spec = importlib.util.spec_from_file_location("compare", SHARED / "compare.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Robustness scenarios of which only results are compared; README.md gives the reasons.
RESULT_ONLY = {"long-n48-4l-mix-4"}


def assert_no_difference(compare: ModuleType, folder: Path, name: str, only: str = "all") -> None:
    expected = compare.load(str(folder / "traces" / f"{name}.jsonl.gz"))
    for wanted, record in itertools.zip_longest(expected, replay_on_core(folder, name)):
        assert wanted is not None, f"a record too many: {record}"
        assert record is not None, f"record {wanted['i']} is missing"
        differences = [f"{field}: expected {x}, got {y}" for field, x, y in compare.diff_record(wanted, record, only)]
        assert not differences, f"record {wanted['i']} ({wanted['op']}): " + "; ".join(differences)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", scenario_names(SHARED))
def test_no_recorded_decision_differs(compare: ModuleType, name: str) -> None:
    assert_no_difference(compare, SHARED, name)


@pytest.mark.sample(12)
@pytest.mark.parametrize("name", scenario_names(SHARED / "robust"))
def test_no_corrected_decision_differs(compare: ModuleType, name: str) -> None:
    assert_no_difference(compare, SHARED / "robust", name, "result" if name in RESULT_ONLY else "all")
