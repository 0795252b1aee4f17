"""Kernels are compiled before the first test: tests with time-outs must not wait for a compiler."""

import pytest

from hived_extender.warm import compile_kernels


@pytest.fixture(scope="session", autouse=True)
def compiled_kernels() -> None:
    compile_kernels()
