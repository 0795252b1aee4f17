"""Every command on a page exists: hived's with their options, targets of make, modules that Python runs, files."""

import re

import pytest

from docs.site.pages import Page, pages
from tests.docs.commands import Command, commands_of, inline_invocations, invocations, wrong_words
from tests.places import ROOT

COMMANDS = [command for page in pages() for command in commands_of(page)]
TARGETS = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("command", [each for each in COMMANDS if invocations(each.text)], ids=str)
def test_hived_knows_every_option_in_a_block(command: Command) -> None:
    assert [wrong for words in invocations(command.text) if (wrong := wrong_words(words))] == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.path)
def test_hived_knows_every_option_in_a_sentence(page: Page) -> None:
    found = [(text, wrong_words(words)) for text in inline_invocations(page) for words in invocations(text)]
    assert [(text, wrong) for text, wrong in found if wrong] == []


def test_every_target_of_make_exists() -> None:
    named = {target for page in pages() for target in re.findall(r"`make ([a-z][a-z0-9-]+)", page.text)}
    named |= {target for each in COMMANDS for target in re.findall(r"^make ([a-z0-9-]+)", each.text)}
    assert named - TARGETS == set()


def test_every_module_that_is_run_exists() -> None:
    named = {module for page in pages() for module in re.findall(r"python -m ([\w.]+)", page.text)}
    folders = [ROOT, ROOT / "extender"]
    places = {module: [folder / module.replace(".", "/") for folder in folders] for module in named}
    assert [
        module
        for module, found in places.items()
        if not any(place.with_suffix(".py").is_file() or (place / "__main__.py").is_file() for place in found)
    ] == []


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("hived get cluster  # all", [["get", "cluster"]]),
        ("hived manifests --config a.yaml | kubectl apply -f -", [["manifests", "--config", "a.yaml"]]),
        ("source <(hived completion bash)", [["completion", "bash"]]),
        ("hived config schema > file && hived version", [["config", "schema"], ["version"]]),
        ("hived config push -m 'a b' \\\n  --yes", [["config", "push", "-m", "a b", "--yes"]]),
        ("kubectl get pods hived", []),
    ],
)
def test_calls_of_hived_are_found_in_shell(text: str, calls: list[list[str]]) -> None:
    assert invocations(text) == calls


@pytest.mark.parametrize(
    "words",
    [
        "config push --none",
        "nothing",
        "config nothing",
        "get cluster -o xml",
        "serve --log-format xml",
        "demo two words",
    ],
)
def test_words_that_hived_refuses_are_found(words: str) -> None:
    assert wrong_words(words.split()) != ""


def test_nothing_is_installed_by_a_name_that_no_package_index_has() -> None:
    installed = [
        word for each in COMMANDS for word in re.findall(r"\bpip install ([^-\s&|](?:\$\([^)]*\)|\S)*)", each.text)
    ]
    assert installed
    assert [word for word in installed if not word.endswith(".whl") and not (ROOT / word).exists()] == []
