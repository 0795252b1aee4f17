"""A client of the service's inspect paths: their JSON read back into values, for the commands that show a cluster."""

import re
import ssl
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

import msgspec

from hived.errors import UserError
from hived.specs import FREE_PRIORITY, OPPORTUNISTIC_PRIORITY
from hived_extender.pods.wire import DEVICES_PATH, SHORTAGES_PATH, WHAT_IF_PATH, PodOutcome, WhatIfResult

DEFAULT_SERVER = "http://127.0.0.1:9096"
TIMEOUT_S = 30.0

PHYSICAL_CLUSTER = "/v1/inspect/clusterstatus/physicalcluster"
VIRTUAL_CLUSTERS = "/v1/inspect/clusterstatus/virtualclusters/"
GROUPS = "/v1/inspect/affinitygroups/"

_TOKEN = re.compile(r"[\x21-\x7e]+")

T = TypeVar("T")


def virtual_cluster_path(vc: str) -> str:
    """The inspect path of one virtual cluster."""
    return VIRTUAL_CLUSTERS + quote(vc, safe="")


def group_path(name: str) -> str:
    """The inspect path of one group; its name may hold slashes."""
    return GROUPS + quote(name)


class Cell(msgspec.Struct, rename="camel"):
    """A physical or virtual cell with everything below it; what a kind of cell does not have stays empty."""

    cell_type: str
    cell_address: str
    cell_state: str = "Free"
    cell_healthiness: str = "Healthy"
    cell_priority: int = FREE_PRIORITY
    leaf_cell_type: str = ""
    is_node_level: bool = False
    vc: str = ""
    cell_children: "list[Cell]" = []
    physical_cell: "Cell | None" = None

    def leaves(self) -> "list[Cell]":
        """The leaf cells below this one, or the cell itself, in tree order."""
        if not self.cell_children:
            return [self]
        return [leaf for child in self.cell_children for leaf in child.leaves()]

    def nodes(self) -> "list[Cell]":
        """The node-level cells at or below this one, in tree order."""
        if self.is_node_level or not self.cell_children:
            return [self]
        return [node for child in self.cell_children for node in child.nodes()]

    @property
    def name(self) -> str:
        """The last part of the address: a node's name, a leaf's device index."""
        return self.cell_address.rsplit("/", 1)[-1]

    @property
    def is_bad(self) -> bool:
        """Whether any leaf below is on a bad node."""
        return self.cell_healthiness == "Bad"

    @property
    def is_used(self) -> bool:
        """Whether a group runs here, or is to run here once its victims are gone."""
        return self.cell_priority > FREE_PRIORITY

    @property
    def is_opportunistic(self) -> bool:
        """Whether what runs here has no claim to stay."""
        return self.cell_priority == OPPORTUNISTIC_PRIORITY


class LazyPreemption(msgspec.Struct, rename="camel"):
    """Who took a group's place in its virtual cluster, and when."""

    preemptor: str = ""
    preemption_time: str = ""


class GroupStatus(msgspec.Struct, rename="camel"):
    """Where a group is and who belongs to it. Placements: node -> device indices."""

    vc: str = ""
    priority: int = 0
    state: str = ""
    physical_placement: dict[str, list[int]] | None = None
    virtual_placement: dict[str, list[str]] | None = None
    allocated_pods: list[str] | None = None
    preempting_pods: list[str] | None = None
    lazy_preemption_status: LazyPreemption | None = None


class GroupMetadata(msgspec.Struct):
    """A group's name."""

    name: str


class Group(msgspec.Struct):
    """An affinity group as served."""

    metadata: GroupMetadata
    status: GroupStatus

    @property
    def name(self) -> str:
        """The group's name."""
        return self.metadata.name


class Shortage(msgspec.Struct, rename="camel"):
    """Promises of a chain that can each be kept, but not all together."""

    virtual_clusters: list[str]
    message: str
    reasons: list[str]


class LostDevices(msgspec.Struct, rename="camel"):
    """Leaf cells of one type that a node has lost, and why."""

    node: str
    leaf_cell_type: str = ""
    lost_leaf_cells: int = 0
    reason: str = ""


class _Groups(msgspec.Struct):
    items: list[Group] | None = None


def _is_address(server: str) -> bool:
    try:
        url = urlsplit(server)
        has_port = url.port is None or url.port > 0  # reading a port that is none raises
    except ValueError:
        return False
    return url.scheme in ("http", "https") and bool(url.hostname) and has_port and " " not in server


@dataclass(frozen=True, slots=True)
class Credentials:
    """How to know a service that speaks https, and what to show it; nothing of it is needed for one that is open.

    Attributes
    ----------
    token, token_file : a token of the cluster, or a file that has one; the token goes first
    certificate_authority : the file of the CA that has signed the service's certificate; else those of the system count
    client_certificate, client_key : files
    """

    token: str = field(default="", repr=False)
    token_file: Path | None = None
    certificate_authority: Path | None = None
    client_certificate: Path | None = None
    client_key: Path | None = None

    def read_token(self) -> str:
        """The token, "" for none. Raises UserError, in which the token does not appear."""
        token = self.token
        if not token and self.token_file is not None:
            try:
                token = self.token_file.read_text(encoding="ascii")
            except (OSError, UnicodeDecodeError) as error:
                raise UserError(f"cannot read a token from {self.token_file}: {_reason(error)}") from error
        token = token.strip()
        if not _TOKEN.fullmatch(token) and (token or self.token_file is not None):
            raise UserError("the token is none: expected one word of ASCII letters and signs")
        return token

    def context(self) -> ssl.SSLContext:
        """What https needs. Raises UserError for files that cannot be used."""
        if self.client_key is not None and self.client_certificate is None:
            raise UserError("a client key goes with a client certificate: give both")
        try:
            context = ssl.create_default_context(cafile=self.certificate_authority)
            if self.client_certificate is not None:
                # Without a function OpenSSL would ask for the passphrase on the terminal.
                context.load_cert_chain(self.client_certificate, self.client_key, password=lambda: "")
        except (OSError, ValueError) as error:
            files = [self.certificate_authority, self.client_certificate, self.client_key]
            named = ", ".join(str(file) for file in files if file is not None)
            raise UserError(
                f"cannot use {named}: {_reason(error)}; expected PEM files, keys without a passphrase"
            ) from error
        return context


NO_CREDENTIALS = Credentials()


class NoAnswerError(UserError):
    """A service could not be reached, or did not answer in time: whatever was asked may have been done."""


class Inspector:
    """Asks one service. Every call raises UserError if it does not answer, or with its own words if it refuses."""

    def __init__(self, server: str = DEFAULT_SERVER, credentials: Credentials = NO_CREDENTIALS) -> None:
        if "://" not in server:
            server = f"http://{server}"
        if not _is_address(server):
            raise UserError(f"server {server!r}: expected an address such as {DEFAULT_SERVER}")
        self._server = server.rstrip("/")
        self._token = credentials.read_token()
        is_https = urlsplit(server).scheme == "https"
        if self._token and not is_https:
            raise UserError(f"a token is sent over https only, and the server is {server}: give its https address")
        self._context = credentials.context() if is_https else None

    @property
    def server(self) -> str:
        """The address of the service."""
        return self._server

    def physical_cluster(self) -> list[Cell]:
        """The top cells, in file order."""
        return self._decode(PHYSICAL_CLUSTER, list[Cell])

    def virtual_clusters(self) -> dict[str, list[Cell]]:
        """Each virtual cluster's preassigned cells, then the leaves it uses opportunistically."""
        return self._decode(VIRTUAL_CLUSTERS, dict[str, list[Cell]])

    def virtual_cluster(self, vc: str) -> list[Cell]:
        """One virtual cluster's cells."""
        return self._decode(virtual_cluster_path(vc), list[Cell])

    def groups(self) -> list[Group]:
        """All groups that hold or await cells."""
        return self._decode(GROUPS, _Groups).items or []

    def group(self, name: str) -> Group:
        """One group."""
        return self._decode(group_path(name), Group)

    def lost_devices(self) -> list[LostDevices]:
        """The devices of nodes that cannot be had; none from a service that does not know of such."""
        status, answer = self.ask(DEVICES_PATH, expected=(404,))
        return [] if status == 404 else self.decode(DEVICES_PATH, list[LostDevices], answer)

    def shortages(self) -> list[Shortage]:
        """The promises that cannot all be kept; none from a service that does not know of such."""
        status, answer = self.ask(SHORTAGES_PATH, expected=(404,))
        return [] if status == 404 else self.decode(SHORTAGES_PATH, list[Shortage], answer)

    def what_if(self, pods: Sequence[Mapping[str, Any]]) -> list[PodOutcome]:
        """What would become of these pods, created together now; nothing is."""
        return self._decode(WHAT_IF_PATH, WhatIfResult, msgspec.json.encode({"pods": pods})).pods

    def fetch(self, path: str, body: bytes | None = None) -> bytes:
        """The JSON of a path, as served; with a body, the answer to that."""
        return self.ask(path, body)[1]

    def ask(
        self, path: str, body: bytes | None = None, *, expected: Collection[int] = (), timeout_s: float = TIMEOUT_S
    ) -> tuple[int, bytes]:
        """(status, body) of an answer; those that refuse raise UserError, unless their status is `expected`."""
        headers = {"Accept": "application/json", **({"Content-Type": "application/json"} if body else {})}
        request = Request(self._server + path, body, headers)
        if self._token:
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        try:
            with self._open(request, expected, timeout_s) as response:
                return response.status or 0, bytes(response.read())
        except HTTPError as error:
            raise UserError(_refusal(error), error.code) from error
        except (URLError, OSError) as error:
            reason = error.reason if isinstance(error, URLError) else error
            raise NoAnswerError(
                f"no answer from {self._server}: {reason}; is hived serve running there?", 503
            ) from error
        except HTTPException as error:
            found = type(error).__name__
            raise UserError(
                f"{self._server} does not answer as hived does: expected HTTP, found {found}", 502
            ) from error

    def _open(self, request: Request, expected: Collection[int], timeout_s: float) -> HTTPResponse | HTTPError:
        try:
            answer: HTTPResponse = urlopen(request, timeout=timeout_s, context=self._context)
        except HTTPError as error:
            if error.code in expected:
                return error
            raise
        return answer

    def decode(self, path: str, answer_type: type[T], answer: bytes) -> T:
        """The answer of a path as a value."""
        try:
            return msgspec.json.decode(answer, type=answer_type)
        except msgspec.MsgspecError as error:
            raise UserError(f"{self._server}{path} does not answer as hived does: {error}", 502) from error

    def _decode(self, path: str, answer_type: type[T], body: bytes | None = None) -> T:
        return self.decode(path, answer_type, self.fetch(path, body))


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or "no PEM in it"
    return (error.strerror if isinstance(error, OSError) else None) or "its content is unusable"


def _refusal(error: HTTPError) -> str:
    """The message of an error answer: a JSON text from the service, or whatever stands between us and it."""
    try:
        return msgspec.json.decode(error.read(), type=str)
    except (msgspec.MsgspecError, OSError, HTTPException):
        return f"{error.url} answered {error.code} {error.reason}"
