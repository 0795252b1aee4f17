"""The shape of the code is measured right."""

import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from docs.site import house
from tests.places import ROOT


def test_a_place_stands_above_the_highest_one_that_it_imports_from() -> None:
    arrows = {"service": {"core", "values"}, "core": {"values"}, "values": set(), "tools": {"values"}}
    assert house.floors(arrows) == {"values": 1, "core": 2, "tools": 2, "service": 3}
    assert house.back(arrows) == set()


def test_arrows_that_close_a_circle_are_found_and_lift_nothing() -> None:
    arrows = {"service": {"core"}, "core": {"values", "life"}, "life": {"core"}, "values": set()}
    assert house.back(arrows) == {("core", "life"), ("life", "core")}
    assert house.floors(arrows) == {"values": 1, "life": 1, "core": 2, "service": 3}


def test_the_picture_has_a_box_for_each_room_and_a_line_for_each_arrow() -> None:
    found = house.modules()
    arrows = house.arrows_between(found, lambda module: house.room_of(module, found[module]))
    tags = [each.tag.rpartition("}")[2] for each in ElementTree.fromstring(house.picture()).iter()]
    assert tags.count("rect") == len(arrows) > 10
    assert tags.count("line") == sum(map(len, arrows.values()))


@pytest.mark.long
def test_the_road_of_a_queued_job_is_followed_until_it_runs() -> None:
    command = [sys.executable, "-m", "docs.site.house", "--road"]
    told = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    files = [int(count) for count in re.findall(r"\d+", told.split("| files |")[1].splitlines()[0])]
    assert len(files) == 4
    assert max(files[:3]) <= files[3] <= sum(files[:3])
    assert min(files) > 5
