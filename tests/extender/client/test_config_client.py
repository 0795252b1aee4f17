"""A client of the configuration: answers that no service of ours gives."""

import pytest

from hived.values.errors import UserError
from hived_extender.api.configuration import ConfigPushArgs
from hived_extender.client.config_client import ConfigClient
from hived_extender.client.inspection import Inspector

NO_REPORT = b'{"groups": 3}'


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (200, b'{"version": 2, "outcome": %b}' % NO_REPORT),
        (409, b'{"message": "another version", "plan": %b}' % NO_REPORT),
    ],
)
def test_a_push_whose_answer_holds_no_report_is_an_error(
    monkeypatch: pytest.MonkeyPatch, status: int, answer: bytes
) -> None:
    monkeypatch.setattr(Inspector, "ask", lambda *_, **__: (status, answer))
    with pytest.raises(UserError, match="does not answer as hived does"):
        ConfigClient(Inspector()).push(ConfigPushArgs("text"))


def test_a_plan_that_is_no_report_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Inspector, "ask", lambda *_, **__: (200, NO_REPORT))
    with pytest.raises(UserError, match="does not answer as hived does"):
        ConfigClient(Inspector()).plan("text", "file")
