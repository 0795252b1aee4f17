"""Server settings: the file goes before the environment, the environment before the defaults (rule 1.12)."""

from pathlib import Path

import pytest

from hived_config.loader import load_text
from hived_config.settings import Budgets, PreemptBy, Settings, config_path
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
