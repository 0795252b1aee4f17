"""A few random histories of tenants who go past their quotas; `python -m tests.property.quota_cheats` plays many."""

import pytest

from tests.property.quota_cheats import Cheats


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(12))
def test_no_quota_is_passed_by_any_road(seed: int) -> None:
    Cheats(seed).run()
