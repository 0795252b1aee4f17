"""The key `certify`: a cluster that takes another configuration only with a certificate of a replayed trace."""

from enum import Enum
from typing import Any

import msgspec
import yaml

from hived_config.kinds import Choice, Integer, Key, Number, Record, Text
from hived_config.reader import Reader, describe

MOST_DAYS = 366


class OnFailure(Enum):
    """The answer to a certificate that says a promise would be broken."""

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

    def as_json(self) -> dict[str, Any]:
        """As a file could have it."""
        what: dict[str, Any] = {"days": self.days} if self.days else {"trace": self.trace}
        if self.sha256:
            what["sha256"] = self.sha256
        return what | {"percent": self.percent, "onFailure": self.on_failure.value}


_WHAT = "the certificate that a push has to bring (a mapping with days or trace)"


class _Certify(Record):
    """A record with exactly one of two keys."""

    def read(self, reader: Reader, node: yaml.Node) -> Demand | None:
        """The demand; None after noting what is wrong."""
        if not isinstance(node, yaml.MappingNode):
            reader.note(node, describe(node), self.what)
            return None
        given = self.given(reader, node)
        days, trace, sha256, percent, on_failure = (given.value(name) for name in self.keys)
        if ("days" in given.nodes) == ("trace" in given.nodes):
            found = "days and trace" if "days" in given.nodes else "neither days nor trace"
            reader.note(node, found, "one of them: days of the cluster's own record, or the name of a trace")
            return None
        if "sha256" in given.nodes and "trace" not in given.nodes:
            reader.note(given.nodes["sha256"], "a sha256 without a trace", "it beside trace, as it is of that file")
            return None
        if None in (days, trace, sha256, percent, on_failure):
            return None
        return Demand(days, trace, sha256, percent, on_failure)


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
            is_nullable=False,
        ),
        Key(
            "trace",
            Text("the name of a file, without folders", r"[^/\s][^/]{0,254}"),
            "replay the trace in a file of this name",
            "",
            rule="none",
            is_nullable=False,
        ),
        Key(
            "sha256", Text("64 hexadecimal digits", r"[0-9a-f]{64}"), "of that file", "", rule="any", is_nullable=False
        ),
        Key(
            "percent",
            Number("a percentage"),
            "by how much the mean delay of a virtual cluster's guaranteed jobs may grow",
            10.0,
            is_nullable=False,
        ),
        Key(
            "onFailure",
            Choice(OnFailure),
            "`refuse` refuses a configuration that would break a promise; `warn` takes it, and the history says so",
            OnFailure.REFUSE,
            is_nullable=False,
        ),
    ),
)

CERTIFY_KEY = Key(
    "certify",
    CERTIFY,
    "another configuration is taken only with a certificate of a replayed trace; see [certificates](certify.md)",
    rule="no certificates",
    is_nullable=False,
)
