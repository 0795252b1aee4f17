"""The Flask application that is made when the first request needs it."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from werkzeug.test import Client

from hived_extender.api import paths
from hived_extender.http import app
from hived_extender.http.access import Gate, gate_of
from hived_extender.http.app import create_app
from hived_extender.http.shim import LateApp
from tests.extender.machine.small_cluster import SmallCluster

pytestmark = pytest.mark.sample(3)


@pytest.mark.parametrize("path", [paths.READINESS_PATH, "/v1/inspect/clusterstatus", "/nowhere"])
def test_it_answers_as_the_application_itself(path: str) -> None:
    service = SmallCluster().service
    answers = [Client(each).get(path) for each in (LateApp(service), create_app(service))]
    assert answers[0].status_code == answers[1].status_code
    assert answers[0].data == answers[1].data


def test_it_has_the_gate_that_it_was_given() -> None:
    gate = Gate()
    assert gate_of(LateApp(SmallCluster().service, gate)) is gate


def test_it_is_made_once_for_requests_that_come_together(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr(app, "create_app", lambda *given: made.append(given) or create_app(*given))
    client = Client(LateApp(SmallCluster().service))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: client.get("/healthz"), range(16)))
    assert len(made) == 1


def test_a_replica_does_not_import_flask_before_somebody_needs_it() -> None:
    code = "import sys, hived_extender.running; print('flask' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
