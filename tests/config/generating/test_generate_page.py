"""docs/generate.md shows what is really made."""

import re

from hived_config.generating.generate import generated
from hived_config.generating.layout import RESERVED_CPU, RESERVED_MEMORY_MIB, read_layout
from hived_config.generating.nodes import AMD_GPU, PRODUCT_LABELS, Reading
from hived_config.generating.shares import Shares
from hived_config.generating.topologies import LEVELS
from tests.places import ROOT

PAGE = (ROOT / "docs" / "generate.md").read_text(encoding="utf-8")


def test_the_example_is_what_is_made_of_the_layout() -> None:
    layout, expected = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    found = read_layout(layout, "layout.yaml")
    made = generated(found.machines, shares=Shares.parse(["default=2", "vision=1"]), source="a layout of OpenPAI")
    assert made.text == expected


def test_what_is_looked_for_on_nodes_is_documented() -> None:
    assert all(f"`{resource}`" in PAGE for resource in Reading().resources)
    assert f"`{PRODUCT_LABELS[Reading().resources[0]]}`, `{PRODUCT_LABELS[AMD_GPU]}`" in PAGE
    assert f"{RESERVED_CPU:.0f} CPU and {RESERVED_MEMORY_MIB / 1024:.0f}Gi are kept back" in PAGE


def test_exactly_the_levels_inside_machines_are_documented() -> None:
    section = PAGE.split("## Inside a machine\n")[1].split("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == list(LEVELS)
