"""A simulation that is interrupted gives the same bytes as one that is not."""

import io
import pickle
from pathlib import Path

import msgspec
import pytest

from hived.scheduler import new_state
from hived.values.errors import UserError
from hived_simulator.campaign import Campaign, Progress
from hived_simulator.checkpoints import FILE, _Pickler, _Unpickler, discard, load, save
from hived_simulator.plan import Options, OverQuota, Plan, make_plan
from hived_simulator.traces.jobs import Trace
from hived_simulator.traces.own import to_lines
from tests.simulator.builders import NODE, cluster_of, random_jobs

pytestmark = pytest.mark.sample(4)

CONFIG = """
rules: 2
physicalCluster:
  cellTypes:
    PAIR: {childCellType: GPU, childCellNumber: 2}
    NODE: {childCellType: PAIR, childCellNumber: 2, isNodeLevel: true}
    RACK: {childCellType: NODE, childCellNumber: 2}
  physicalCells:
  - {cellType: RACK, cellAddress: rack-0, cellChildren: [{cellAddress: n0}, {cellAddress: n1}]}
  - {cellType: RACK, cellAddress: rack-1, cellChildren: [{cellAddress: n2}, {cellAddress: n3}]}
  - {cellType: RACK, cellAddress: rack-2, cellChildren: [{cellAddress: n4}, {cellAddress: n5}]}
virtualClusters:
  a: {virtualCells: [{cellType: RACK.NODE, cellNumber: 2}]}
  b: {virtualCells: [{cellType: RACK, cellNumber: 1}]}
  c: {virtualCells: [{cellType: RACK.NODE, cellNumber: 1}]}
"""
OPTIONS = Options(
    against=("private", "quota-bestfit", "quota-spread"),
    what=("fail=n1@30m", "heal=n1@1h", "add=1xRACK@70m"),
    over_quota=OverQuota.OPPORTUNISTIC,
    grace_s=45.0,
    draws=1,
)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return plan_in(tmp_path)


def plan_in(folder: Path, options: Options = OPTIONS, seed: int = 5) -> Plan:
    config, trace = folder / "now.yaml", folder / "trace.jsonl"
    config.write_text(CONFIG)
    jobs = tuple(random_jobs(seed, ("a", "b", "c"), 40))
    trace.write_bytes(b"".join(to_lines(Trace("random", jobs))))
    return make_plan(config, trace, options)


def told(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def whole(plan: Plan, out: Path) -> dict[str, bytes]:
    assert Campaign(plan, out).run(lambda progress: None, lambda: False, lambda: 0.0, 60.0)
    return told(out)


@pytest.mark.long
def test_it_goes_on_with_the_same_bytes_from_every_look(plan: Plan, tmp_path: Path) -> None:
    expected = whole(plan, tmp_path / "whole")
    out, is_done, stops = tmp_path / "parts", False, 0
    while not is_done:
        campaign = Campaign(plan, out)
        assert campaign.is_resumed == (stops > 0)
        looks = iter((False, True))
        is_done = campaign.run(lambda progress: None, lambda: next(looks), lambda: 0.0, 60.0)  # noqa: B023  # called at once
        stops += 1
    assert stops > 5
    assert told(out) == expected


def test_every_minute_a_checkpoint_is_written(plan: Plan, tmp_path: Path) -> None:
    seen: list[bool] = []
    clock = iter(range(0, 1_000_000, 61))

    def tell(progress: Progress) -> None:
        seen.append((tmp_path / "out" / FILE).exists())

    Campaign(plan, tmp_path / "out").run(tell, lambda: False, lambda: float(next(clock)), 60.0)
    assert (seen[0], all(seen[1:]), (tmp_path / "out" / FILE).exists()) == (False, True, False)


def test_one_of_other_options_is_refused(plan: Plan, tmp_path: Path) -> None:
    Campaign(plan, tmp_path / "out").run(lambda progress: None, lambda: True, lambda: 0.0, 60.0)
    other = plan_in(tmp_path, msgspec.structs.replace(OPTIONS, seed=1))
    with pytest.raises(UserError, match="of other files, options or version"):
        Campaign(other, tmp_path / "out")


def test_one_of_another_trace_is_refused(plan: Plan, tmp_path: Path) -> None:
    Campaign(plan, tmp_path / "out").run(lambda progress: None, lambda: True, lambda: 0.0, 60.0)
    with pytest.raises(UserError, match="of other files"):
        Campaign(plan_in(tmp_path, seed=6), tmp_path / "out")


@pytest.mark.parametrize(
    ("damage", "message"), [(lambda old: old[:-5], "is damaged"), (lambda old: b"x", "no checkpoint")]
)
def test_a_damaged_one_is_refused(tmp_path: Path, damage, message: str) -> None:
    save(tmp_path, "me", [1, 2, 3])
    (tmp_path / FILE).write_bytes(damage((tmp_path / FILE).read_bytes()))
    with pytest.raises(UserError, match=message):
        load(tmp_path, "me")


def test_none_is_none(tmp_path: Path) -> None:
    assert load(tmp_path, "me") is None
    save(tmp_path, "me", {"a": 1})
    assert load(tmp_path, "me") == {"a": 1}
    discard(tmp_path)
    assert load(tmp_path, "me") is None


class Harm:
    """Something that runs code when it is read."""

    def __reduce__(self):
        return print, ("harm",)


def test_code_is_not_read(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    pickle.Pickler(buffer).dump(Harm())
    with pytest.raises(pickle.UnpicklingError, match=r"builtins\.print does not belong"):
        _Unpickler(io.BytesIO(buffer.getvalue())).load()


def test_arrays_of_a_state_share_one_block_again() -> None:
    state = new_state(cluster_of(2, a={NODE: 1}))
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=5).dump(state)
    copy = _Unpickler(io.BytesIO(buffer.getvalue())).load()
    assert (copy.cells.memory == state.cells.memory).all()
    copy.cells.bad[0] = 7
    assert (copy.cells.memory == 7).sum() == (state.cells.memory == 7).sum() + 1
