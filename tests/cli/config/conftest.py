"""Fixtures that tests of commands about configurations share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.config.config_service import LESS, Service, serving


@pytest.fixture
def service() -> Iterator[Service]:
    """A service with one version."""
    with serving(Service()) as running:
        yield running


@pytest.fixture
def less(tmp_path: Path) -> Path:
    """The file of a configuration that promises less."""
    path = tmp_path / "less.yaml"
    path.write_text(LESS)
    return path
