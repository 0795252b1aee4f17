"""Shared by the configuration tests: a small file without mistakes, and reading text instead of files."""

import pytest

from hived.values.specs import ClusterSpec
from hived_config.document import ConfigError
from hived_config.loader import load_text

SOUND = """\
physicalCluster:
  cellTypes:
    PAIR: {childCellType: GPU, childCellNumber: 2}
    NODE: {childCellType: PAIR, childCellNumber: 2, isNodeLevel: true}
    RACK: {childCellType: NODE, childCellNumber: 2}
  physicalCells:
  - cellType: RACK
    cellChildren:
    - cellAddress: n0
    - cellAddress: n1
      pinnedCellId: pin
  - {cellType: NODE, cellAddress: n2}
virtualClusters:
  a:
    virtualCells:
    - {cellType: RACK.NODE, cellNumber: 1}
  b:
    virtualCells:
    - {cellType: NODE.PAIR, cellNumber: 2}
    pinnedCells:
    - pinnedCellId: pin
"""


def changed(old: str, new: str) -> str:
    """The sound file with one place changed."""
    assert SOUND.count(old) == 1, f"{old!r} is not in the sound file once"
    return SOUND.replace(old, new)


def cluster_of(text: str) -> ClusterSpec:
    """The cluster that the text of a file describes."""
    return load_text(text, "f", environ={}).cluster


def mistakes_of(text: str, lenient: bool = False) -> list[str]:
    """Every mistake in the text of a file, as it is printed: `f:line: path: found ..., expected ...`."""
    with pytest.raises(ConfigError) as caught:
        load_text(text, "f", lenient, environ={})
    return [str(mistake) for mistake in caught.value.mistakes]
