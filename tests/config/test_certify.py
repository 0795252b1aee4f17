"""The key `certify`."""

import pytest

from hived_config.compare import compare
from hived_config.document import ConfigError
from hived_config.loader import load_text
from hived_config.settings import Demand, OnFailure
from tests.cli.config.config_service import TEXT


def with_demand(text: str) -> str:
    return f"certify: {text}\n{TEXT}"


def test_a_file_without_the_key_demands_nothing() -> None:
    assert load_text(TEXT, "f").certify is None


@pytest.mark.parametrize(
    ("text", "demand"),
    [
        ("{days: 14}", Demand(days=14)),
        ("{days: 7, percent: 5, onFailure: warn}", Demand(days=7, percent=5.0, on_failure=OnFailure.WARN)),
        (f"{{trace: jobs.csv, sha256: {'a' * 64}}}", Demand(trace="jobs.csv", sha256="a" * 64)),
    ],
)
def test_a_demand_is_read(text: str, demand: Demand) -> None:
    assert load_text(with_demand(text), "f").certify == demand


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{percent: 5}", "f:1: certify: found neither days nor trace, expected one of them"),
        ("{days: 1, trace: a}", "found days and trace"),
        ("{days: 0}", "expected a whole number of days, at least 1"),
        ("{days: 3, sha256: " + "a" * 64 + "}", "found a sha256 without a trace"),
        ("{trace: /tmp/jobs.csv}", "expected the name of a file, without folders"),
        ("{trace: a, sha256: abc}", "expected 64 hexadecimal digits"),
        ("{days: 1, percent: -1}", "expected a percentage"),
        ("{days: 1, onFailure: wran}", "expected refuse or warn"),
        ("{dais: 1}", "expected one of days, trace"),
        ("{days: }", "found nothing, expected a whole number of days"),
        ("{days: 1, percent: }", "found nothing, expected a percentage"),
        ("", "found nothing, expected the certificate"),
        ("14", "expected the certificate that a push has to bring"),
    ],
)
def test_mistakes_have_their_place(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_text(with_demand(text), "f")
    assert message.rsplit(": ", maxsplit=1)[-1] in str(caught.value), str(caught.value)


def test_a_plan_names_a_changed_demand() -> None:
    changes = compare(load_text(TEXT, "f"), load_text(with_demand("{days: 14}"), "f"))
    (change,) = changes.settings
    assert (change.key, change.old, change.new) == (
        "certify",
        None,
        {"days": 14, "percent": 10.0, "onFailure": "refuse"},
    )
