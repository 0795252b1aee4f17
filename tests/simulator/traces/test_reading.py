"""Formats are recognised by the text, whatever the file is called and however it is packed."""

import bz2
import gzip
import lzma
from pathlib import Path

import pytest

from hived.errors import UserError
from hived_simulator.traces.jobs import Pods
from hived_simulator.traces.reading import read_trace

PHILLY = """\
timestamp,duration,num_gpus,gpu_time,cluster
2017-10-16 00:00:10,60.0,1,60.0,red
2017-10-16 00:00:00,30.5,20,610.0,blue
"""


def test_a_table_is_read_in_the_order_of_submission(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(PHILLY)
    trace = read_trace(tmp_path / "a.csv")
    assert [(job.tenant, job.submitted_s, job.duration_s) for job in trace.jobs] == [
        ("blue", 0.0, 30.5),
        ("red", 10.0, 60.0),
    ]
    assert trace.start == 1508112000.0
    assert trace.jobs[0].pods == (Pods(1, 4), Pods(2, 8))


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_packed_file_is_unpacked_whatever_its_name(tmp_path: Path, pack) -> None:
    (tmp_path / "a").write_bytes(pack(PHILLY.encode()))
    assert len(read_trace(tmp_path / "a").jobs) == 2


def test_an_unknown_text_is_refused_with_all_formats(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("colour,size\nred,2\n")
    with pytest.raises(UserError, match=r"a.csv:1: the format is not recognised.*philly-csv"):
        read_trace(tmp_path / "a.csv")
