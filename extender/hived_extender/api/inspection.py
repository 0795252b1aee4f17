"""A client of the service's own HTTP: its JSON read back into values, and changes of configurations and queues.

Moments and lengths of time, as answers have them and as people read them.
"""

import math
import re
import ssl
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import IO, Any, Literal, TypeVar
from urllib.parse import unquote, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import msgspec
import urllib3

from hived import __version__
from hived.values.errors import UserError
from hived_extender.api import paths
from hived_extender.api.cells import AffinityGroup, AffinityGroups, Cell, LostDevices, RulesInForce, Shortage
from hived_extender.api.configuration import (
    Config,
    ConfigPlanArgs,
    ConfigPushArgs,
    ConfigPushResult,
    ConfigReport,
    ConfigVersion,
    Refusal,
    VersionEntry,
    VersionList,
)
from hived_extender.api.paths import CONFIG_PATH, CONFIG_PLAN_PATH, CONFIG_VERSIONS_PATH
from hived_extender.api.queues import QueueArgs, QueuedJob, QueuedJobs, QueueList, QueueReport
from hived_extender.api.status import Status
from hived_extender.api.waiting import FreeCells, IfArgs, IfResult, Job, Jobs, NodeView, PodOutcome, WhatIfResult, Why

DEFAULT_SERVER = "http://127.0.0.1:9096"
TIMEOUT_S = 30.0

_RETRIES = urllib3.Retry(connect=False, read=False, other=False, redirect=10, respect_retry_after_header=False)
"""Redirects alone are followed; a token goes to no other server."""

_PIECE = 64 * 1024

_NO_TLS = "WRONG_VERSION_NUMBER"
"""OpenSSL's reason where the other side answers in clear text."""

_NO_PATH = "Not Found: "
"""The beginning of the service's answer to a path that it does not know."""

_TOKEN = re.compile(r"[\x21-\x7e]+")

T = TypeVar("T")


def _is_address(server: str) -> bool:
    try:
        url = urlsplit(server)
        has_port = url.port is None or url.port > 0  # reading a port that is none raises
    except ValueError:
        return False
    return url.scheme in ("http", "https") and bool(url.hostname) and has_port and " " not in server


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials for a service, and the CA that verifies it over https; an open service needs none of them.

    Attributes
    ----------
    token, token_file : a token of the cluster, or a file that has one; the token goes first
    certificate_authority : the file of the CA that has signed the service's certificate; else the system's CAs count
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
        """The TLS context. Raises UserError for files that cannot be used."""
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
    """A service could not be reached, or did not answer in time: the request may have been carried out."""


class OlderError(UserError):
    """A service of an older version does not know a path."""


class Inspector:
    """Asks the service at `server`. Every call raises UserError if it does not answer, or in its words of refusal.

    `change_count` grows with each answer that is another one than before; only after `remember`.
    """

    def __init__(
        self, server: str = DEFAULT_SERVER, credentials: Credentials = NO_CREDENTIALS, *, timeout_s: float = TIMEOUT_S
    ) -> None:
        if "://" not in server:
            server = f"http://{server}"
        if not _is_address(server):
            raise UserError(f"server {server!r}: expected an address such as {DEFAULT_SERVER}")
        self.server = server.rstrip("/")
        token = credentials.read_token()
        is_https = urlsplit(server).scheme == "https"
        if token and not is_https:
            raise UserError(f"a token is sent over https only, and the server is {server}: give its https address")
        self._headers = {"Accept": "application/json", "Connection": "close"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._pool = _pool(self.server, credentials.context() if is_https else None)
        self._timeout_s = timeout_s
        self.change_count = 0
        self._kept: dict[str, tuple[str, bytes]] | None = None  # by path, the tag and the answer

    def remember(self) -> None:
        """Keep the last answer of every path from now on, so that the service sends only those that have changed."""
        self._kept = {}

    def physical_cluster(self) -> list[Cell]:
        """The top cells, in file order."""
        return self.get(paths.PHYSICAL_CLUSTER_PATH, list[Cell])

    def virtual_clusters(self) -> dict[str, list[Cell]]:
        """Each virtual cluster's preassigned cells, then the leaves it uses opportunistically."""
        return self.get(paths.VIRTUAL_CLUSTERS_PATH, dict[str, list[Cell]])

    def virtual_cluster(self, vc: str) -> list[Cell]:
        """One virtual cluster's cells."""
        return self.get(paths.virtual_cluster_path(vc), list[Cell])

    def groups(self) -> list[AffinityGroup]:
        """All groups that hold or await cells."""
        return self.get(paths.GROUPS_PATH, AffinityGroups).items or []

    def group(self, name: str) -> AffinityGroup:
        """One group."""
        return self.get(paths.group_path(name), AffinityGroup)

    def lost_devices(self) -> list[LostDevices]:
        """The lost devices of nodes; none from a service of an older version."""
        return self._get_if_known(paths.DEVICES_PATH, LostDevices)

    def shortages(self) -> list[Shortage]:
        """The promises that cannot all be kept; none from a service of an older version."""
        return self._get_if_known(paths.SHORTAGES_PATH, Shortage)

    def rules(self) -> Literal["hived", 2]:
        """The rules of decisions in force; "hived" from a service of an older version."""
        status, answer = self.ask(paths.RULES_PATH, expected=(404,))
        return "hived" if status == 404 else self.decode(paths.RULES_PATH, RulesInForce, answer).rules

    def status(self) -> Status:
        """The state of the replica that answers. Raises OlderError."""
        return self.get(paths.STATUS_PATH, Status)

    def what_if(self, pods: Sequence[Mapping[str, Any]]) -> list[PodOutcome]:
        """The outcome for these pods if they were created together now; nothing is created."""
        answer = self.fetch(paths.WHAT_IF_PATH, msgspec.json.encode({"pods": pods}))
        return self.decode(paths.WHAT_IF_PATH, WhatIfResult, answer).pods

    def jobs(self, wanted: Mapping[str, Sequence[str]] | None = None) -> list[Job]:
        """The jobs that `jobs_path` chooses, waiting ones first; all if nothing is given. Raises OlderError."""
        return self.get(jobs_path(wanted or {}), Jobs).items

    def why(self, name: str) -> Why | None:
        """All that is known of a job, by the name that it has in `jobs`; None if there is none, or no such path."""
        path = paths.why_path(name)
        status, answer = self.ask(path, expected=(404,))
        return None if status == 404 else self.decode(path, Why, answer)

    def why_if(self, name: str, changes: Sequence[str]) -> IfResult:
        """The outcome of these changes for a waiting job. Raises OlderError."""
        body = msgspec.json.encode(IfArgs(name, list(changes)))
        return self.decode(paths.IF_PATH, IfResult, self.fetch(paths.IF_PATH, body))

    def nodes(self, is_bad: bool = False, selector: str = "") -> list[NodeView]:
        """The nodes that `nodes_path` chooses. Raises OlderError."""
        return self.get(nodes_path(is_bad, selector), list[NodeView])

    def drained(self, node: str) -> NodeView:
        """A node, with what the jobs on it would do if it were drained. Raises UserError (404), OlderError."""
        return self.get(f"{paths.NODES_PATH}?{urlencode({'drained': node})}", list[NodeView])[0]

    def free_cells(self) -> list[FreeCells]:
        """The cells of every virtual cluster by level. Raises OlderError."""
        return self.get(paths.FREE_CELLS_PATH, list[FreeCells])

    def queues(self) -> list[QueueReport]:
        """The queues that have jobs. Raises OlderError."""
        return self.get(paths.QUEUES_PATH, QueueList).items

    def queued_jobs(self, queue: str = "", wanted: Mapping[str, str] | None = None) -> QueuedJobs:
        """The jobs of a queue, or of all, as `queue_jobs_path` chooses them. Raises UserError (404), OlderError."""
        return self.get(queue_jobs_path(queue, wanted or {}), QueuedJobs)

    def queued_job(self, name: str) -> QueuedJob | None:
        """A job in its queue; None if it is in none, or the service has no queues."""
        path = paths.queued_job_path(name)
        status, answer = self.ask(path, expected=(404,))
        return None if status == 404 else self.decode(path, QueuedJob, answer)

    def change_queue(self, args: QueueArgs) -> QueuedJob:
        """Hold a job, release it, or move it. Raises UserError, OlderError."""
        path = paths.QUEUE_CHANGES_PATH
        return self.decode(path, QueuedJob, self.fetch(path, msgspec.json.encode(args)))

    def get(self, path: str, answer_type: type[T]) -> T:
        """The answer of a path as a value."""
        return self.decode(path, answer_type, self.fetch(path))

    def _get_if_known(self, path: str, item_type: type[T]) -> list[T]:
        status, answer = self.ask(path, expected=(404,))
        if status == 404:
            return []
        return self.decode(path, list[item_type], answer)  # type: ignore[valid-type]  # the type is a value here

    def fetch(self, path: str, body: bytes | None = None) -> bytes:
        """The JSON of a path, as served; with a body, the answer to that."""
        return self.ask(path, body)[1]

    def ask(
        self, path: str, body: bytes | None = None, *, expected: Collection[int] = (), timeout_s: float | None = None
    ) -> tuple[int, bytes]:
        """(status, body) of an answer; refusals raise UserError, unless their status is `expected`.

        Of a path that the server does not have it is OlderError.
        """
        headers = dict(self._headers)
        tag, kept = (self._kept or {}).get(path, ("", b"")) if body is None else ("", b"")
        if tag:
            headers["If-None-Match"] = tag
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            response = self._pool.request(
                "GET" if body is None else "POST",
                self.server + path,
                body=body,
                headers=headers,
                timeout=timeout_s or self._timeout_s,
                retries=_RETRIES,
                preload_content=False,
            )
            if response.status == HTTPStatus.NOT_MODIFIED and tag:
                return HTTPStatus.OK, kept
            if 200 <= response.status < 300 or response.status in expected:
                if body is None:
                    self._keep(path, response)
                return response.status, response.data
        except urllib3.exceptions.HTTPError as error:
            raise self._broken(error) from error
        raise self._refused(response, path)

    def _keep(self, path: str, response: urllib3.BaseHTTPResponse) -> None:
        if self._kept is not None:
            known = self._kept.get(path)
            self.change_count += known is None or known[1] != response.data
            self._kept[path] = (response.headers.get("ETag", ""), response.data)

    def download(self, path: str, target: IO[bytes], most_bytes: int) -> int:
        """Write the answer of a path, unpacked, to a file; returns its bytes. Raises UserError beyond `most_bytes`."""
        count = 0
        headers = self._headers | {"Accept": "*/*", "Accept-Encoding": "gzip"}
        try:
            response = self._pool.request(
                "GET", self.server + path, headers=headers, timeout=TIMEOUT_S, retries=_RETRIES, preload_content=False
            )
            if response.status == 200:
                for piece in response.stream(_PIECE, decode_content=True):
                    count += len(piece)
                    if count > most_bytes:
                        response.close()
                        raise UserError(f"{self.server}{path} has more than {most_bytes >> 20} MiB", 413)
                    target.write(piece)
                return count
        except urllib3.exceptions.HTTPError as error:
            raise self._broken(error) from error
        raise self._refused(response, path)

    def _broken(self, error: urllib3.exceptions.HTTPError) -> UserError:
        reason = _root(error)
        if isinstance(reason, ssl.SSLError) and reason.reason == _NO_TLS:
            address = self.server.replace("https", "http", 1)
            return UserError(f"{self.server} speaks no TLS: it is an http address, not https; try {address}", 502)
        if isinstance(reason, ssl.SSLCertVerificationError):
            return UserError(f"cannot trust {self.server}: {_untrusted(reason)}", 502)
        if isinstance(reason, OSError):
            return NoAnswerError(f"no answer from {self.server}: {reason}; is hived serve running there?", 503)
        found = type(reason).__name__
        return UserError(f"{self.server} does not answer as hived does: expected HTTP, found {found}", 502)

    def _refused(self, response: urllib3.BaseHTTPResponse, path: str) -> UserError:
        """The message of an error answer: a JSON text from the service, or other text from a proxy between."""
        try:
            said = _text(response.data)
        except urllib3.exceptions.HTTPError:
            said = ""
        url = self.server + urlsplit(path).path
        if response.status != HTTPStatus.NOT_FOUND or (said and not said.startswith(_NO_PATH)):
            return UserError(said or f"{url} answered {response.status} {response.reason}", response.status)
        older = f"its version of hived is older than this one, {__version__}"
        option = "with --server (HIVED_SERVER)"
        remedy = f"update the service, or give another address {option}" if said else f"give its address {option}"
        return OlderError(f"{url} does not exist: {'' if said else 'it is no hived, or '}{older}; {remedy}", 404)

    def decode(self, path: str, answer_type: type[T], answer: bytes) -> T:
        """The answer of a path, read already, as a value."""
        try:
            return msgspec.json.decode(answer, type=answer_type)
        except msgspec.MsgspecError as error:
            raise UserError(f"{self.server}{path} does not answer as hived does: {error}", 502) from error


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or "no PEM in it"
    return (error.strerror if isinstance(error, OSError) else None) or "its content is unusable"


_WRONG_DATES = (9, 10)
_WRONG_NAMES = (62, 64)
"""OpenSSL's codes of certificates that are not valid now, and of those that are for other names."""


def _untrusted(error: ssl.SSLCertVerificationError) -> str:
    """Return why the certificate of a server does not count, and what helps."""
    if error.verify_code in _WRONG_NAMES:
        return f"{error.verify_message}; give a name that is in its certificate with --server (HIVED_SERVER)"
    if error.verify_code in _WRONG_DATES:
        return f"{error.verify_message}; have it renewed, or correct the clock of this machine"
    option = "--certificate-authority FILE (HIVED_CERTIFICATE_AUTHORITY)"
    return f"its certificate is of an unknown CA ({error.verify_message}); give the file of its CA with {option}"


def _text(answer: bytes) -> str:
    """The text that an answer in JSON is; "" if it is none."""
    try:
        return msgspec.json.decode(answer, type=str)
    except msgspec.MsgspecError:
        return ""


def jobs_path(wanted: Mapping[str, Sequence[str]]) -> str:
    """The path of the jobs that have one of these values of each property: vc, state, user, namespace, node.

    A `selector` chooses by labels.
    """
    query = urlencode({name: [value for value in values if value] for name, values in wanted.items()}, doseq=True)
    return f"{paths.JOBS_PATH}?{query}" if query else paths.JOBS_PATH


def queue_jobs_path(queue: str, wanted: Mapping[str, str]) -> str:
    """The path of the jobs of a queue, or of all, by these: vc, user, me, namespace, prefix, selector, waiting.

    `limit` and `continue` choose a part of them.
    """
    query = urlencode({name: value for name, value in wanted.items() if value})
    path = paths.queue_jobs_path(queue)
    return f"{path}?{query}" if query else path


def nodes_path(is_bad: bool, selector: str = "") -> str:
    """The path of the nodes, or of the bad ones, whose labels meet a selector."""
    query = "&".join([*(["bad"] if is_bad else []), *([urlencode({"selector": selector})] if selector else [])])
    return f"{paths.NODES_PATH}?{query}" if query else paths.NODES_PATH


def _root(error: Exception) -> Exception:
    """The error that the library has wrapped, once or several times."""
    inner = next((each for each in error.args if isinstance(each, Exception)), error.__cause__)
    return _root(inner) if isinstance(error, urllib3.exceptions.HTTPError) and isinstance(inner, Exception) else error


def _pool(server: str, context: ssl.SSLContext | None) -> urllib3.PoolManager:
    """Connections to a server, through the proxy that the environment names for it."""
    url = urlsplit(server)
    proxy = getproxies().get(url.scheme)
    if not proxy or proxy_bypass(url.hostname or ""):
        return urllib3.PoolManager(ssl_context=context)
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    login = unquote(urllib3.util.parse_url(proxy).auth or "")
    headers = urllib3.make_headers(proxy_basic_auth=login) if login else None
    return urllib3.ProxyManager(proxy, proxy_headers=headers, ssl_context=context)


PLAN_TIMEOUT_S = 120.0
PUSH_TIMEOUT_S = 600.0
"""A push is answered when the configuration is in force."""


class PushAnswer(msgspec.Struct, frozen=True):
    """The end of a push.

    `version` is the one now in force, 0 if the push came to nothing; then `message` says why. `plan` is the effect of
    the push, done or to be expected now; None if not known. `is_conflict`: the push met something that was not so when
    it was planned.
    """

    version: int
    message: str
    plan: ConfigReport | None
    is_conflict: bool


class ConfigClient:
    """Asks one service; raises UserError as `Inspector` does."""

    def __init__(self, inspector: Inspector) -> None:
        self._inspector = inspector

    def current(self) -> Config:
        """The configuration in force."""
        return self._inspector.get(CONFIG_PATH, Config)

    def versions(self) -> list[VersionEntry]:
        """The versions that are kept, newest first, without their texts."""
        return self._inspector.get(CONFIG_VERSIONS_PATH, VersionList).items

    def version(self, number: int) -> ConfigVersion:
        """One version with its text."""
        try:
            return self._inspector.get(f"{CONFIG_VERSIONS_PATH}/{number}", ConfigVersion)
        except UserError as error:
            if error.code != HTTPStatus.NOT_FOUND:
                raise
            kept = ", ".join(str(each.version) for each in self.versions())
            raise UserError(f"version {number} is not kept; kept are {kept or 'none'}", error.code) from error

    def plan(self, text: str, file: str) -> ConfigReport:
        """The effect that a configuration would have; messages call it `file`."""
        body = msgspec.json.encode(ConfigPlanArgs(text, file))
        _, answer = self._inspector.ask(CONFIG_PLAN_PATH, body, timeout_s=PLAN_TIMEOUT_S)
        return self._inspector.decode(CONFIG_PLAN_PATH, ConfigReport, answer)

    def push(self, push: ConfigPushArgs) -> PushAnswer:
        """Bring a configuration into force, and wait until it is."""
        expected = (HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY)
        body = msgspec.json.encode(push)
        try:
            status, answer = self._inspector.ask(CONFIG_PATH, body, expected=expected, timeout_s=PUSH_TIMEOUT_S)
        except NoAnswerError as error:
            raise NoAnswerError(f"{error}\nIt may be in force all the same: see hived config history", 503) from error
        if status not in expected:
            applied = self._inspector.decode(CONFIG_PATH, ConfigPushResult, answer)
            return PushAnswer(applied.version, "", applied.outcome, False)
        refused = self._inspector.decode(CONFIG_PATH, Refusal, answer)
        return PushAnswer(0, refused.message, refused.plan, status == HTTPStatus.CONFLICT)


def parse_time(text: str) -> datetime | None:
    """An RFC 3339 time, None if `text` is not one."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else None


def seconds_since(text: str, now: datetime) -> float | None:
    """Seconds from an RFC 3339 time until now, None if `text` is not one."""
    moment = parse_time(text)
    return None if moment is None else (now - moment).total_seconds()


def as_minute(text: str) -> str:
    """An RFC 3339 time to the minute, in UTC, as `2026-11-20 10:00 UTC`; the text itself if it is no time."""
    moment = parse_time(text)
    return text if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def duration(seconds: float) -> str:
    """`seconds` in at most two units, the finer one only while it still tells something: 45s, 3m20s, 5h, 12d."""
    total = max(0, math.floor(seconds))
    minutes, hours, days = total // 60, total // 3600, total // 86400
    if total < 120:
        return f"{total}s"
    if minutes < 10:
        return _two(minutes, "m", total % 60, "s")
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    return _two(days // 365, "y", days % 365, "d")


def _two(major: int, major_unit: str, minor: int, minor_unit: str) -> str:
    return f"{major}{major_unit}" + (f"{minor}{minor_unit}" if minor else "")
