"""Manifests are read by libyaml: hundreds of readings in plain Python would take most of the time of these tests."""

from collections.abc import Iterator

import pytest
import yaml


@pytest.fixture(scope="module", autouse=True)
def quick_yaml() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(yaml, "SafeLoader", yaml.CSafeLoader)
        yield
