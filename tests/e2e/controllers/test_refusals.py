"""What the embedded API server refuses, and takes, a real one does too, in the same words."""

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.plane import ControlPlane
from tests.lab.embedded.refusals import REFUSALS, TAKEN, Call, Json, play

NAMESPACE = "refusals"
KINDS = {"POST": "application/json", "PATCH": "application/strategic-merge-patch+json"}


@pytest.fixture(scope="module")
def call(plane: ControlPlane) -> Iterator[Call]:
    """Sends requests as an administrator; their namespace goes with the last one."""
    administrator = plane.authority.client("refused", ["system:masters"])
    tls = ssl.create_default_context(cafile=str(plane.authority.file))
    tls.load_cert_chain(administrator.certificate, administrator.key)

    def send(method: str, path: str, body: Json) -> tuple[int, Any]:
        headers = {"Content-Type": KINDS[method]}
        request = urllib.request.Request(plane.url + path, json.dumps(body).encode(), headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30, context=tls) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    plane.kubectl("create", "namespace", NAMESPACE)
    plane.wait_for("its service account", lambda: "default" in plane.kubectl("get", "sa", "-n", NAMESPACE).stdout)
    yield send
    plane.kubectl("delete", "namespace", NAMESPACE)


@pytest.fixture(autouse=True)
def emptied(plane: ControlPlane, call: Call) -> Iterator[None]:
    """No object of a test is there for the next one."""
    yield
    plane.kubectl("delete", "pods,jobs", "--all", "--force", "--cascade=foreground", "-n", NAMESPACE)


@pytest.mark.parametrize("name", REFUSALS)
def test_a_request_is_refused(call: Call, name: str) -> None:
    play(REFUSALS[name], call, NAMESPACE)


@pytest.mark.parametrize("name", TAKEN)
def test_a_request_is_taken(call: Call, name: str) -> None:
    play(TAKEN[name], call, NAMESPACE)
