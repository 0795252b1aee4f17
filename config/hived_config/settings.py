"""The server's settings from file, environment and defaults (rule 1.12); the keys `rules` (rule 18.1) and `certify`."""

import os
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Literal

import msgspec
import yaml

from hived.values.specs import Rules
from hived_config.reader import (
    INT64_MAX,
    Choice,
    Given,
    Integer,
    Key,
    Number,
    Reader,
    Schema,
    StructOf,
    Text,
    ValueKind,
    closest,
    describe,
)

NAMES = {Rules.HIVED: "hived", Rules.BETTER: "2"}
"""The spelling of each in a file."""

_BY_NAME = {name: rules for rules, name in NAMES.items()}


class RulesKind(ValueKind):
    """The name or the number of a set of rules."""

    what = "hived or 2"
    words = "`hived` or `2`"

    def read(self, reader: Reader, node: yaml.Node) -> Rules | None:
        """The rules; None after noting that it names none."""
        word = reader.text(node, self.what)
        if word not in _BY_NAME:
            reader.note(node, describe(node), self.what, closest(word, _BY_NAME))
        return _BY_NAME.get(word)

    def schema(self) -> Schema:
        """A number for editors, or either as text."""
        return {"enum": ["hived", 2, "2"]}


RULES_KEY = Key(
    "rules",
    RulesKind(),
    "the rules of decisions: `hived`, exactly as the reference decides, or `2`, the better ones; see "
    "[rules](#the-rules-of-decisions)",
    rule="`hived`",
    is_nullable=False,
)


def value_of(rules: Rules) -> Literal["hived", 2]:
    """The rules as JSON has them."""
    return "hived" if rules is Rules.HIVED else 2


MOST_DAYS = 366


class OnFailure(Enum):
    """The response to a certificate that predicts a broken promise."""

    REFUSE = "refuse"
    WARN = "warn"


class Demand(msgspec.Struct, frozen=True):
    """The certificate that a push has to bring.

    days : at least so many days of the cluster's record; 0 where a trace is asked for
    trace : the name of the file of the trace; "" where a record is asked for
    sha256 : of that file, in hex; "" for any
    percent : by how much the mean delay of a virtual cluster may grow
    """

    days: int = 0
    trace: str = ""
    sha256: str = ""
    percent: float = 10.0
    on_failure: OnFailure = OnFailure.REFUSE


_WHAT = "the certificate that a push has to bring (a mapping with days or trace)"


class _Certify(StructOf):
    """A record with exactly one of two keys."""

    def check(self, given: Given) -> None:
        """Note two of them, none, and what belongs to the other."""
        reader, nodes = given.reader, given.nodes
        if ("days" in nodes) == ("trace" in nodes):
            found = "days and trace" if "days" in nodes else "neither days nor trace"
            reader.note(given.node, found, "one of them: days of the cluster's own record, or the name of a trace")
        elif "sha256" in nodes and "trace" not in nodes:
            reader.note(nodes["sha256"], "a sha256 without a trace", "it beside trace, as it is of that file")


CERTIFY = _Certify(
    "certify",
    _WHAT,
    "The certificate that a push has to bring; either `days` or `trace`.",
    (
        Key(
            "days",
            Integer("a whole number of days", 1, MOST_DAYS),
            "replay at least so many of the last days of the cluster's own record (`hived serve --record`)",
            0,
            rule="none",
        ),
        Key(
            "trace",
            Text("the name of a file, without folders", r"[^/\s][^/]{0,254}"),
            "replay the trace in a file of this name",
            "",
            rule="none",
        ),
        Key("sha256", Text("64 hexadecimal digits", r"[0-9a-f]{64}"), "of that file", "", rule="any"),
        Key(
            "percent",
            Number("a percentage"),
            "the percentage by which the mean delay of a virtual cluster's guaranteed jobs may grow",
            10.0,
        ),
        Key(
            "onFailure",
            Choice(OnFailure),
            "`refuse` refuses a configuration that would break a promise; `warn` takes it, and the history says so",
            OnFailure.REFUSE,
        ),
    ),
    Demand,
)

CERTIFY_KEY = Key(
    "certify",
    CERTIFY,
    "another configuration is taken only with a certificate of a replayed trace; see [certificates](certify.md)",
    rule="no certificates",
    is_nullable=False,
)


class PreemptBy(Enum):
    """The component that evicts the victims of a preemption."""

    SERVICE = "service"
    KUBE_SCHEDULER = "kube-scheduler"


class Budgets(Enum):
    """The service's answer to a PodDisruptionBudget that protects a victim."""

    OVERRIDE = "override"
    RESPECT = "respect"


class BorrowedResources(Enum):
    """The CPU, memory and other resources that opportunistic pods may have on the nodes of borrowed cells."""

    SHARE = "share"
    ANY = "any"


class WaitingMessages(Enum):
    """The form of waiting messages: the sentence of a pod's certificate, or HiveD's own message before it."""

    EXPLAINED = "explained"
    HIVED = "hived"


class Settings(msgspec.Struct, frozen=True):
    """The server's settings; SETTING_KEYS describe the fields, in this order.

    Without `kube_api_server_address` and kubeconfig file, the service account of the server's own pod is used.
    """

    kube_api_server_address: str = ""
    kube_config_file_path: str = ""
    web_server_address: str = ":9096"
    force_pod_bind_threshold: int = 3
    waiting_pod_block_ms: int = 0
    preempt_by: PreemptBy = PreemptBy.SERVICE
    disruption_budgets: Budgets = Budgets.OVERRIDE
    eviction_grace_s: int = 30
    waiting_messages: WaitingMessages = WaitingMessages.EXPLAINED
    history_file: str = ""
    borrowed_resources: BorrowedResources = BorrowedResources.SHARE

    def listen_on(self) -> tuple[str, int]:
        """(host, port) of `web_server_address`; the host is "" for every interface."""
        host, _, port = self.web_server_address.rpartition(":")
        return host.strip("[]"), int(port)


DEFAULTS = Settings()

SETTING_KEYS = (
    Key(
        "kubeApiServerAddress",
        Text(
            "http[s]://host[:port], such as https://10.0.0.1:6443",
            r"(([Hh][Tt][Tt][Pp][Ss]?://)?(\[[0-9A-Fa-f:.]+\]|[^:\[\]/\s]+)(:[0-9]{1,5})?(/\S*)?)?",
        ),
        "`http[s]://host:port`; goes before the address in the kubeconfig file",
        rule="`${KUBE_APISERVER_ADDRESS}`",
    ),
    Key(
        "kubeConfigFilePath",
        Text("the path of a file"),
        "a kubeconfig file with the credentials to use",
        rule="`${KUBECONFIG}`, else `${HOME}/.kube/config`, if there is such a file",
    ),
    Key(
        "webServerAddress",
        Text(
            "[host]:port, such as :9096 or 127.0.0.1:9096",
            r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]/\s]*):"
            r"([0-5]?[0-9]{1,4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])",
        ),
        "`[host]:port` to listen on; without a host, on every interface",
        DEFAULTS.web_server_address,
    ),
    Key(
        "forcePodBindThreshold",
        Integer("a whole number", 0),
        "after this many filter calls for a pod that is being bound and says `ignoreK8sSuggestedNodes: true`, the "
        "scheduler binds it itself",
        DEFAULTS.force_pod_bind_threshold,
    ),
    Key(
        "waitingPodSchedulingBlockMilliSec",
        Integer("a whole number", 0, INT64_MAX),
        "the delay of the filter call of a pod that has to wait, in milliseconds: a stricter order of arrival for "
        "less throughput",
        DEFAULTS.waiting_pod_block_ms,
    ),
    Key(
        "preemptionBy",
        Choice(PreemptBy),
        "evictions in a preemption are made by the `service` (always completes), or by `kube-scheduler` (through "
        "the preempt verb); see [preemption](preemption.md)",
        DEFAULTS.preempt_by,
    ),
    Key(
        "podDisruptionBudgets",
        Choice(Budgets),
        "a victim that a PodDisruptionBudget protects is deleted after `evictionGraceSeconds` (`override`), or "
        "waited for until the budget allows its eviction (`respect`)",
        DEFAULTS.disruption_budgets,
    ),
    Key(
        "evictionGraceSeconds",
        Integer("a whole number", 0),
        "how long a refused eviction is tried before the victim is deleted",
        DEFAULTS.eviction_grace_s,
    ),
    Key(
        "waitingMessages",
        Choice(WaitingMessages),
        "the message about a pod without room, in kube-scheduler, events and conditions: `explained` (one sentence "
        "with the [causes](waiting.md#causes)) or `hived` (HiveD's own message first, for programs that look for "
        "it)",
        DEFAULTS.waiting_messages,
    ),
    Key(
        "historyFile",
        Text("the path of a file"),
        "the file that keeps the [history](history.md) over restarts, at most 64 MiB, made if need be; without "
        "one, in memory only. It is read when the process starts",
        rule="`${HISTORY_FILE}`",
    ),
    Key(
        "borrowedResources",
        Choice(BorrowedResources),
        "the CPU, memory and other resources that an opportunistic pod may request: `share` (its cells' [share of "
        "the node](preemption.md#a-borrowers-share), and amounts that are promised to none) or `any`",
        DEFAULTS.borrowed_resources,
    ),
)
"""In the order of the fields of `Settings`, which they describe."""


def config_path(environ: Mapping[str, str]) -> Path:
    """The path of the configuration file: ${CONFIG}, else hivedscheduler.yaml in the working directory."""
    return Path(environ.get("CONFIG") or "hivedscheduler.yaml")


def read_settings(given: Given, environ: Mapping[str, str]) -> Settings:
    """Read the settings of a document; missing ones come from `environ`."""
    defaults = {
        "kubeApiServerAddress": environ.get("KUBE_APISERVER_ADDRESS", ""),
        "kubeConfigFilePath": _default_kube_config(environ),
        "historyFile": environ.get("HISTORY_FILE", ""),
    }
    return Settings(*(given.value(key.name, defaults.get(key.name)) for key in SETTING_KEYS))


def _default_kube_config(environ: Mapping[str, str]) -> str:
    """${KUBECONFIG}, which may list several files, else ${HOME}/.kube/config; "" where neither exists."""
    paths = environ.get("KUBECONFIG") or os.path.join(environ.get("HOME", ""), ".kube", "config")
    return paths if any(os.path.isfile(path) for path in paths.split(os.pathsep)) else ""
