"""Fixtures that tests of several replicas share."""

import pytest

from hived_extender.kube import lease as election
from hived_extender.machine import leadership
from tests.extender.kube.lease_clock import LeaseClock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> LeaseClock:
    """Replicas that act quickly, and whose Leases run out only when the clock is turned."""
    monkeypatch.setattr(election, "RENEW_INTERVAL_S", 0.15)
    monkeypatch.setattr(election, "POLL_INTERVAL_S", 0.05)
    monkeypatch.setattr(leadership, "RETRY_WAIT_S", 0.05)
    return LeaseClock(monkeypatch)
