"""Failed comparisons of the runner show what differs."""

import pytest

pytest.register_assert_rewrite("tests.reconfiguration.runner")
