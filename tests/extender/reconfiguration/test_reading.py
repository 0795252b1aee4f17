"""Configurations that somebody sends are read apart: the same as elsewhere, and within limits whatever they are."""

import json
import pickle
from pathlib import Path

import pytest

from hived.values.errors import UserError
from hived_config.document import ConfigError
from hived_config.loader import Configuration, load_text
from hived_config.reader import MAX_MISTAKES
from hived_extender.http.app import create_app
from hived_extender.http.change_rights import ConfigPushes
from hived_extender.http.change_routes import CONFIG_TEXT_LIMIT
from hived_extender.reconfiguration import reading
from hived_extender.reconfiguration.reading import MOST_NODES, read_apart
from hived_extender.reconfiguration.stores import FileStore
from tests.benchmarks.load import config_text
from tests.extender.machine.small_cluster import CONFIG, SmallCluster
from tests.extender.stored_config import configurations_of
from tests.places import ROOT

pytestmark = pytest.mark.sample(6)

SAMPLES = sorted((ROOT / "config" / "samples").glob("*.yaml"))
TYPES = "physicalCluster:\n  cellTypes:\n    R: {childCellType: G, childCellNumber: 2, isNodeLevel: true}\n"

HOSTILE = {
    "list": "[" + "a," * 500_000 + "]",
    "empty lists": "[" + "[]," * 330_000 + "]",
    "dashes": "- \n" * 330_000,
    "bad cells": TYPES + "  physicalCells: [" + "[]," * 300_000 + "]\nvirtualClusters: {}\n",
    "keys": "".join(f"k{number}: 1\n" for number in range(90_000)),
    "the same key": "{" + "a," * 500_000 + "}",
    "nested": "[" * 500_000,
    "aliases": "a: &a [x]\nb: [" + "*a," * 300_000 + "]\n",
    "merged": "a: &a {b: 1}\n<<: [" + "*a," * 300_000 + "]\n",
}


@pytest.fixture(autouse=True)
def _nothing_read_before() -> None:
    reading._latest.clear()


@pytest.mark.sample(2)
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name)
def test_a_configuration_that_is_read_apart_is_the_same(sample: Path) -> None:
    text = sample.read_text()
    assert read_apart(text, "f") == load_text(text, "f")


def test_mistakes_are_the_same() -> None:
    text = "physicalCluster: 1\nvirtualCluster: {}\n"
    with pytest.raises(ConfigError) as here:
        load_text(text, "f")
    with pytest.raises(ConfigError) as apart:
        read_apart(text, "f")
    assert apart.value.mistakes == here.value.mistakes


def test_settings_come_from_this_processs_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBE_APISERVER_ADDRESS", "http://elsewhere:1")
    assert read_apart(CONFIG, "f").settings == load_text(CONFIG, "f").settings


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_text_is_refused_within_the_limits(name: str) -> None:
    assert len(HOSTILE[name]) < CONFIG_TEXT_LIMIT
    with pytest.raises(ConfigError) as caught:
        read_apart(HOSTILE[name], "f", memory=150 * 2**20)  # address space: it was more than 500 MB, and 13 s
    assert len(caught.value.mistakes) == 1
    assert caught.value.mistakes[0].line > 0, "the limits of the process ended it"


@pytest.mark.long
def test_the_largest_cluster_is_far_from_the_limits() -> None:
    text = config_text(16384)
    assert len(text) < 0.7 * CONFIG_TEXT_LIMIT
    assert load_text(text, "f", most_nodes=MOST_NODES // 2) == read_apart(text, "f")


def test_a_million_mistakes_are_cut_short() -> None:
    text = TYPES + "  physicalCells: [" + "[]," * 100_000 + "]\nvirtualClusters: {}\n"
    with pytest.raises(ConfigError) as caught:
        read_apart(text, "f")
    assert len(caught.value.mistakes) == MAX_MISTAKES + 1
    assert any(f"more than {MAX_MISTAKES} mistakes" in str(each) for each in caught.value.mistakes)


@pytest.mark.parametrize("limits", [{"cpu_s": 0}, {"memory": 30 * 2**20}], ids=["CPU", "memory"])
def test_a_process_that_takes_too_much_is_ended_and_says_so(limits: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=r"found a text that takes more than \d+ s or \d+ MiB to read, expected a sm"):
        read_apart(config_text(16384), "f", **limits)


def test_nothing_but_configurations_comes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_run", lambda question: pickle.dumps(print))
    with pytest.raises(pickle.UnpicklingError, match=r"builtins\.print"):
        read_apart(CONFIG, "f")


def test_without_a_process_the_caller_is_asked_to_try_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading.sys, "executable", "/nonexistent")
    with pytest.raises(UserError, match="cannot read a configuration: No such file or directory; try again") as caught:
        read_apart(CONFIG, "f")
    assert caught.value.code == 503


def test_plans_and_pushes_take_texts_that_a_config_map_could_hold(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(CONFIG)
    read: list[str] = []

    def read_here(text: str, name: str) -> Configuration:
        read.append(name)
        return load_text(text, name)

    configurations = configurations_of(SmallCluster().service, FileStore(file), read=read_here)
    client = create_app(SmallCluster().service, None, ConfigPushes(configurations, None, is_private=True)).test_client()
    fitting = CONFIG + "#" * (CONFIG_TEXT_LIMIT - len(CONFIG))
    answer = client.post("/v1/config/plan", data=json.dumps({"text": fitting, "file": "f"}))
    assert (answer.status_code, answer.json["refusals"], read) == (200, [], ["f"])
    for path in ("/v1/config/plan", "/v1/config"):
        answer = client.post(path, data=json.dumps({"text": fitting + "#"}))
        assert answer.status_code == 413
        assert f"{CONFIG_TEXT_LIMIT + 1} bytes, at most {CONFIG_TEXT_LIMIT} are taken" in answer.json
    assert read == ["f"]


def test_what_was_planned_is_not_read_again_when_it_is_pushed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods come and go in the meantime, and make the plan outdated."""
    text = SAMPLES[0].read_text()
    planned = reading.read_apart(text, "the configuration")

    def fail(question: bytes) -> bytes:
        raise AssertionError("read again")

    monkeypatch.setattr(reading, "_run", fail)
    assert reading.read_apart(text, "the configuration") is planned
