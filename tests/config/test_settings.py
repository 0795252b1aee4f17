"""Settings of the server, and the keys `rules` and `certify`."""

from pathlib import Path

import pytest

from hived.values.specs import Rules
from hived_config.compare import compare
from hived_config.document import ConfigError
from hived_config.loader import load_text
from hived_config.settings import NAMES, Budgets, Demand, OnFailure, PreemptBy, Settings, config_path, value_of
from tests.cli.config.config_service import TEXT
from tests.config.sound_file import SOUND, mistakes_of


def settings_of(lines: str, environ: dict[str, str] | None = None) -> Settings:
    """The settings of the sound file with these lines in front."""
    return load_text(lines + SOUND, "f", environ=environ or {}).settings


def test_settings_that_are_nowhere_have_their_defaults() -> None:
    assert settings_of("") == Settings("", "", ":9096", 3, 0)


def test_settings_come_from_the_file() -> None:
    lines = (
        "kubeApiServerAddress: http://10.0.0.1:8080\nkubeConfigFilePath: /etc/kube\nwebServerAddress: 127.0.0.1:80\n"
        "forcePodBindThreshold: 0\nwaitingPodSchedulingBlockMilliSec: 50\n"
    )
    environ = {"KUBE_APISERVER_ADDRESS": "http://other", "KUBECONFIG": __file__}
    assert settings_of(lines, environ) == Settings("http://10.0.0.1:8080", "/etc/kube", "127.0.0.1:80", 0, 50)


def test_what_the_file_leaves_out_comes_from_the_environment() -> None:
    settings = settings_of("kubeApiServerAddress:\n", {"KUBE_APISERVER_ADDRESS": "http://a:1", "KUBECONFIG": __file__})
    assert (settings.kube_api_server_address, settings.kube_config_file_path) == ("http://a:1", __file__)


def test_an_empty_text_in_the_file_is_a_value() -> None:
    assert settings_of("kubeApiServerAddress: ''\n", {"KUBE_APISERVER_ADDRESS": "a"}).kube_api_server_address == ""


def test_a_kubeconfig_of_the_environment_counts_only_if_it_exists(tmp_path: Path) -> None:
    assert settings_of("", {"KUBECONFIG": str(tmp_path / "none")}).kube_config_file_path == ""


def test_one_of_several_kubeconfigs_is_enough(tmp_path: Path) -> None:
    paths = f"{tmp_path / 'none'}:{__file__}"
    assert settings_of("", {"KUBECONFIG": paths}).kube_config_file_path == paths


def test_the_kubeconfig_in_the_home_folder_is_the_last_resort(tmp_path: Path) -> None:
    path = tmp_path / ".kube" / "config"
    path.parent.mkdir()
    path.write_text("")
    assert settings_of("", {"HOME": str(tmp_path)}).kube_config_file_path == str(path)


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        (":9096", "", 9096),
        ("127.0.0.1:80", "127.0.0.1", 80),
        ("'[::1]:65535'", "::1", 65535),
        ("node-1:0", "node-1", 0),
    ],
)
def test_the_server_listens_on_a_host_and_a_port(address: str, host: str, port: int) -> None:
    assert settings_of(f"webServerAddress: {address}\n").listen_on() == (host, port)


@pytest.mark.parametrize(
    ("line", "mistake"),
    [
        ("webServerAddress: localhost", "found localhost, expected [host]:port, such as :9096 or 127.0.0.1:9096"),
        ("webServerAddress: :65536", "found :65536, expected [host]:port, such as :9096 or 127.0.0.1:9096"),
        ("webServerAddress: 9096", "found 9096, expected [host]:port, such as :9096 or 127.0.0.1:9096"),
        ("forcePodBindThreshold: -1", "found -1, expected a whole number, at least 0"),
        ("forcePodBindThreshold: '3'", "found the text '3', expected a whole number (did you mean 3?)"),
        ("waitingPodSchedulingBlockMilliSec: 1s", "found 1s, expected a whole number"),
        (
            "kubeApiServerAddress: ftp://a",
            "found ftp://a, expected http[s]://host[:port], such as https://10.0.0.1:6443",
        ),
        ("kubeApiServerAddress: a b", "found a b, expected http[s]://host[:port], such as https://10.0.0.1:6443"),
        ("kubeApiServerAddress: [a]", "found a list, expected http[s]://host[:port], such as https://10.0.0.1:6443"),
        ("webServerAddress: [a]", "found a list, expected [host]:port, such as :9096 or 127.0.0.1:9096"),
        ("kubeConfigFilePath: {a: b}", "found a mapping, expected the path of a file"),
        ("preemptionBy: nobody", "found nobody, expected service or kube-scheduler"),
        ("podDisruptionBudgets: [respect]", "found a list, expected override or respect"),
        ("evictionGraceSeconds: -1", "found -1, expected a whole number, at least 0"),
    ],
)
def test_a_setting_that_makes_no_sense_is_a_mistake(line: str, mistake: str) -> None:
    assert mistakes_of(f"{line}\n{SOUND}") == [f"f:1: {line.split(':', maxsplit=1)[0]}: {mistake}"]


def test_who_preempts_and_how_comes_from_the_file() -> None:
    settings = settings_of("preemptionBy: kube-scheduler\npodDisruptionBudgets: respect\nevictionGraceSeconds: 5\n")
    assert settings.preempt_by is PreemptBy.KUBE_SCHEDULER
    assert settings.disruption_budgets is Budgets.RESPECT
    assert settings.eviction_grace_s == 5


def test_the_service_preempts_and_overrides_budgets_unless_told_otherwise() -> None:
    settings = settings_of("preemptionBy:\n")
    assert (settings.preempt_by, settings.disruption_budgets) == (PreemptBy.SERVICE, Budgets.OVERRIDE)


def test_a_block_in_milliseconds_may_be_longer_than_32_bits() -> None:
    assert settings_of(f"waitingPodSchedulingBlockMilliSec: {2**40}\n").waiting_pod_block_ms == 2**40


def test_the_file_is_named_by_the_environment() -> None:
    assert config_path({}) == Path("hivedscheduler.yaml")
    assert config_path({"CONFIG": "/etc/hived.yaml"}) == Path("/etc/hived.yaml")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", Rules.HIVED),
        ("rules: hived\n", Rules.HIVED),
        ("rules: 2\n", Rules.BETTER),
        ("rules: '2'\n", Rules.BETTER),
    ],
)
def test_a_file_says_its_rules(line: str, expected: Rules) -> None:
    assert load_text(line + SOUND, "f", environ={}).cluster.rules is expected


@pytest.mark.parametrize(
    ("written", "found", "hint"),
    [
        ("1", "1", ""),
        ("HiveD", "HiveD", " (did you mean hived?)"),
        ("[2]", "a list", ""),
        ("''", "the text ''", ""),
        ("", "nothing", ""),
        ("null", "nothing", ""),
        ("2.0", "2.0", ""),
    ],
)
def test_other_rules_are_a_mistake(written: str, found: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_text(f"rules: {written}\n" + SOUND, "f", environ={})
    assert [str(each) for each in caught.value.mistakes] == [f"f:1: rules: found {found}, expected hived or 2{hint}"]


def test_every_set_of_rules_has_a_name_and_a_value() -> None:
    assert NAMES.keys() == set(Rules)
    assert [value_of(rules) for rules in Rules] == ["hived", 2]


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
