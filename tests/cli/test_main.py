"""The frame of the command line: help, errors, versions, completion."""

import json
import re
import subprocess
import sys
from ast import literal_eval

import click
import pytest
from click.testing import CliRunner

from hived import __version__
from hived.kernels.compiling.build import TARGETS
from hived_cli import SUMMARIES, VARIANTS, config, main
from hived_cli.helpers.other_words import OTHER_WORDS
from hived_extender import warm
from tests.docs.commands import wrong_words

GROUPS = {"config": config.SUMMARIES}


def every_command() -> list[tuple[str, click.Command]]:
    """Every command and subcommand as (the words after `hived`, the command)."""
    found: list[tuple[str, click.Command]] = []
    context = click.Context(main)
    pending = [(name, main.get_command(context, name)) for name in main.list_commands(context)]
    while pending:
        name, command = pending.pop(0)
        found.append((name, command))
        if isinstance(command, click.Group):
            pending += [
                (f"{name} {child}", command.get_command(context, child)) for child in command.list_commands(context)
            ]
    return found


@pytest.mark.parametrize(
    ("words", "command"), every_command(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_help_of_every_command_has_examples(words, command):
    result = CliRunner().invoke(main, [*words.split(), "-h"])
    assert result.exit_code == 0
    assert f"Examples:\n    hived {words.split()[0]}" in result.output or f"hived {words}" in result.output


@pytest.mark.parametrize(
    ("words", "command"), every_command(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_every_option_is_explained(words, command):
    silent = [one.name for one in command.params if isinstance(one, click.Option) and not one.help]
    assert silent == []


@pytest.mark.parametrize(
    "words", [*SUMMARIES, *(f"{group} {name}" for group, names in GROUPS.items() for name in names)]
)
def test_the_summary_of_a_command_is_the_first_line_of_its_help(words):
    command = dict(every_command())[words]
    *group, name = words.split()
    summary = GROUPS[group[0]][name] if group else SUMMARIES[name]
    assert (command.help or "").split("\n\n")[0].replace("\n", " ") == summary


def test_a_command_of_a_test_that_names_no_service_asks_nobody():
    """At the default address a service of whoever runs the tests may answer."""
    result = CliRunner().invoke(main, ["get", "cluster"])
    assert (result.exit_code, "no answer from http://127.0.0.1:1:" in result.stderr) == (1, True)


def test_a_library_that_is_not_there_is_said_to_be_missing(monkeypatch):
    monkeypatch.setattr("hived_cli.version.LIBRARIES", ("numpy", "no-such-library"))
    told = json.loads(CliRunner().invoke(main, ["version", "-o", "json"]).output)
    assert (told["no-such-library"], "." in told["numpy"]) == ("not installed", True)


def test_kernels_that_there_are_nowhere_are_an_error_that_names_those_there_are(monkeypatch):
    monkeypatch.setenv("HIVED_KERNELS", "bogus")
    result = CliRunner().invoke(main, ["version"])
    expected = "Error: HIVED_KERNELS=bogus: expected avx512, avx2, baseline, linked, compiled or plain\n"
    assert (result.exit_code, result.stderr, result.stdout) == (1, expected, "")


@pytest.mark.parametrize("name", ["", *VARIANTS, "linked", "compiled", "plain"])
def test_all_kernels_that_there_are_may_be_asked_for(monkeypatch, name):
    monkeypatch.setenv("HIVED_KERNELS", name)
    assert CliRunner().invoke(main, ["version"]).exit_code == 0


def test_the_variants_that_may_be_asked_for_are_those_of_the_library():
    assert set(VARIANTS) == {target.name for targets in TARGETS.values() for target in targets}


HEAVY = (
    "cryptography",
    "flask",
    "hived_config.generating",
    "hived_lab",
    "kubernetes",
    "numba",
    "numpy",
    "uvicorn",
    "uvloop",
    "yaml",
)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("arguments", "imported"),
    [
        (["--help"], set()),
        (["version"], {"numba", "numpy"}),
        (["completion", "bash"], set()),
        (["config", "--help"], set()),
        (["get", "--help"], {"yaml"}),
        (["submit", "--help"], {"hived_config.generating", "yaml"}),
        (["resume", "--help"], {"hived_config.generating", "yaml"}),
        (["serve", "--help"], {"numba", "numpy", "uvicorn", "uvloop", "yaml"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_command_imports_what_it_needs_alone(arguments, imported):
    code = f"import sys; from hived_cli import main; main({arguments}, standalone_mode=False); "
    code += f"print([name for name in {HEAVY} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(literal_eval(result.stdout.splitlines()[-1])) <= imported


@pytest.mark.parametrize(
    ("is_slow", "has_numba", "said"),
    [
        (False, True, "kernels  linked (avx2)"),
        (True, True, "kernels  plain Python, which is slow: python -m hived_extender.warm compiles them, once"),
        (True, False, "kernels  plain Python, which is slow: none are linked, and numba is not installed: "),
    ],
)
def test_version_says_which_kernels_there_are_and_how_to_have_quick_ones(monkeypatch, is_slow, has_numba, said):
    monkeypatch.setattr(warm, "load_kernels", lambda: not is_slow)
    monkeypatch.setattr(warm, "lacks_kernels", lambda: is_slow)
    monkeypatch.setattr(warm, "has_compiler", lambda: has_numba)
    monkeypatch.setattr(warm, "kernels_in_use", lambda: "plain" if is_slow else "linked (avx2)")
    assert said in CliRunner().invoke(main, ["version"]).output
    told = json.loads(CliRunner().invoke(main, ["version", "-o", "json"]).output)
    assert f"kernels  {told['kernels']}".startswith(said)


def test_version_names_this_version():
    assert CliRunner().invoke(main, ["version"]).output.split()[:2] == ["hived", __version__]
    assert CliRunner().invoke(main, ["--version"]).output == f"hived {__version__}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_asks_hived(shell):
    assert "_HIVED_COMPLETE" in CliRunner().invoke(main, ["completion", shell]).output


def test_completion_knows_the_commands():
    environment = {"_HIVED_COMPLETE": "bash_complete", "COMP_WORDS": "hived ve", "COMP_CWORD": "1"}
    result = CliRunner().invoke(main, [], prog_name="hived", env=environment)
    assert result.output == "plain,version\n"


def test_an_unknown_command_is_a_mistake_of_use():
    result = CliRunner().invoke(main, ["sumbit"])
    assert result.exit_code == 2
    assert "No such command 'sumbit'. Did you mean: hived submit\n" in result.stderr
    assert "No such command 'qqq'.\n" in CliRunner().invoke(main, ["qqq"]).stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("cancel train", "hived delete JOB"),
        ("scancel train", "hived delete JOB"),
        ("queue", "hived get queue"),
        ("logs train", "kubectl logs POD"),
        ("status-job train", "hived why JOB"),
        ("describe train", "hived why JOB"),
        ("ps", "hived get jobs"),
        ("nodes", "hived get nodes"),
        ("apply -f job.yaml", "hived submit FILE"),
        ("drain node-1", "kubectl drain NODE"),
        ("push cluster.yaml", "hived config push"),
        ("squeu", "hived get jobs"),
        ("get pods", "kubectl get pods, or hived get jobs --pods"),
        ("get jbos", "hived get jobs"),
        ("config apply", "hived config push FILE"),
        ("config valdate", "hived config validate"),
    ],
)
def test_a_word_of_another_program_gets_the_command_that_does_it_here(words, told):
    result = CliRunner().invoke(main, words.split(), prog_name="hived")
    assert (result.exit_code, result.stderr.splitlines()[-1].partition(" Did you mean: ")[2]) == (2, told)


def test_the_plugin_of_kubectl_names_its_own_commands():
    told = CliRunner().invoke(main, ["scancel"], prog_name="kubectl hived").stderr
    assert told.endswith("Did you mean: kubectl hived delete JOB\n")


def test_every_command_for_a_word_exists_and_no_word_is_a_command():
    for group, said in OTHER_WORDS.items():
        known = click.Context(main).command
        for word in group.split()[1:]:
            known = known.get_command(click.Context(known), word)
        for words, command in said.items():
            assert not {*words.split()} & {*known.summaries, *known.aliases}, words
            for word in words.split():
                for call in re.findall(r"(?<!kubectl )hived [^,]*?(?=,|$| or )", command.format(word=word)):
                    assert wrong_words(call.split()[1:]) == "", call


def test_no_color_means_no_color():
    shown = CliRunner().invoke(
        main, ["get", "cluster", "--server", "http://127.0.0.1:1"], color=True, env={"NO_COLOR": "1"}
    )
    assert "\x1b" not in shown.output
