"""What a real API server refuses is refused in its words."""

from functools import partial
from typing import Any

import pytest

from tests.lab.embedded.helpers import Http
from tests.lab.embedded.refusals import REFUSALS, TAKEN, Json, play


def call(http: Http, method: str, path: str, body: Json) -> tuple[int, Any]:
    return http.patch(path, body, "strategic-merge-patch") if method == "PATCH" else http.call(method, path, body)


@pytest.mark.parametrize("name", REFUSALS)
def test_a_request_is_refused_as_by_a_real_api_server(http: Http, namespace: str, name: str) -> None:
    play(REFUSALS[name], partial(call, http), namespace)


@pytest.mark.parametrize("name", TAKEN)
def test_a_request_is_taken_as_by_a_real_api_server(http: Http, namespace: str, name: str) -> None:
    play(TAKEN[name], partial(call, http), namespace)
