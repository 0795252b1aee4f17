"""Expectations of experiments have longer to come true, on a machine that may have other things to do."""

from collections.abc import Iterator

import pytest

from hived_lab.demo import observer
from hived_lab.demo.runner import run_experiment

PATIENCE = 6.0
"""How many times slower than an idle machine this one may be."""


@pytest.fixture(scope="module", autouse=True)
def patience() -> Iterator[None]:
    assert run_experiment.__kwdefaults__
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(run_experiment.__kwdefaults__, "patience", PATIENCE)
        patched.setattr(observer, "TOGETHER_S", PATIENCE * observer.TOGETHER_S)
        yield
