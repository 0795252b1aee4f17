"""The trace beside the checkout: two weeks of it are the ones that published figures of hived are of."""

import pytest

from hived_simulator.traces.changing import between, first_part, fold, load
from hived_simulator.traces.describing import describe
from hived_simulator.traces.jobs import Trace
from hived_simulator.traces.reading import read_trace
from tests.places import SHARED

PATH = SHARED / "data" / "philly.csv.gz"
DAY = 86_400.0
START_OF_WEEKS = 1508112000.0  # 2017-10-16 00:00:00


@pytest.fixture(scope="module")
def philly() -> Trace:
    if not PATH.exists():
        pytest.skip("there is no trace beside the checkout")
    return read_trace(PATH)


@pytest.mark.long
def test_it_has_82247_jobs_of_15_tenants(philly: Trace) -> None:
    found = describe(philly)
    assert (found.jobs, len(found.tenants)) == (82_247, 15)
    assert (found.start, found.end) == ("2017-09-04T10:30:41+00:00", "2017-12-22T08:02:11+00:00")
    assert {row.gpus: row.jobs for row in found.sizes} == {
        1: 76627, 2: 1818, 4: 1870, 8: 1643, 12: 7, 16: 199, 24: 7, 32: 67, 64: 6, 128: 3,
    }  # fmt: skip
    assert not any(note.startswith("left out") for note in philly.notes)


@pytest.mark.long
def test_13_days_from_the_first_job_of_october_16_have_21736_jobs_of_11_tenants(philly: Trace) -> None:
    """From that job on, at 00:02:04. Calendar days give 21,735 jobs up to October 29, and 21,933 with that day."""
    assert philly.start is not None
    since = START_OF_WEEKS - philly.start
    weeks = first_part(between(philly, since, None), 13 * DAY)
    assert (len(weeks.jobs), len({job.tenant for job in weeks.jobs})) == (21_736, 11)
    assert weeks.start == START_OF_WEEKS + 124
    assert len(between(philly, since, since + 13 * DAY).jobs) == 21_735
    assert len(between(philly, since, since + 14 * DAY).jobs) == 21_933
    assert load(fold(weeks, 1.5 * DAY), 2496) == pytest.approx(2.558, abs=0.001)
