"""Answers to browsers: headers, tags, a whole page or the part that it asks for again; static files; forms.

No page has a script or a style of its own: the policy allows files of this server alone. A page is never kept without
asking again, and a browser that has it already gets 304. Files never change while the service runs: they are read once,
with a digest in their paths.

Forms that change something are taken only from our own pages. A browser sends along whatever lets a user in, the token
that a proxy adds or a client certificate, for any page that posts here; to a loopback address every page on the machine
can post. So three things have to agree. The browser says that the page is of this very host (`Origin`). The form has a
token that only a page of ours could show to this caller. And where callers are not known, the host is a loopback
address by name, so that no name of another site leads here.
"""

import gzip
import hashlib
import hmac
import ipaddress
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from flask import Blueprint, Response, g, render_template, request

from hived.values.errors import UserError
from hived_extender.api.paths import PAGE_PATH
from hived_extender.api.waiting import Job
from hived_extender.http.access import CALLER, Call, Gate
from hived_extender.http.answers import JSON, Identity
from hived_extender.http.browsers import HTML, SAFETY
from hived_extender.http.masking import Mask, Masking
from hived_extender.http.pages.cells import Frames
from hived_extender.http.routing import Backend
from hived_extender.insight.answering import Glances
from hived_extender.insight.queued import JobCounts
from hived_extender.kube.client import KubeClient, KubeError

FOLDER = Path(__file__).parent / "static"
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file: its bytes as they are and compressed, its media type, and a digest."""

    body: bytes
    compressed: bytes
    content_type: str
    digest: str


class Assets:
    """All files in a folder, by their paths in it; read when the first is asked for."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder

    @cached_property
    def files(self) -> dict[str, Asset]:
        """Every file."""
        found = {}
        for path in sorted(self._folder.rglob("*")):
            if path.suffix in TYPES:
                body = path.read_bytes()
                digest = hashlib.blake2b(body, digest_size=8).hexdigest()
                name = path.relative_to(self._folder).as_posix()
                found[name] = Asset(body, gzip.compress(body, mtime=0), TYPES[path.suffix], digest)
        return found

    def path(self, name: str) -> str:
        """The path of a file, another one for other bytes, so that browsers may keep it."""
        return f"/page/static/{name}?v={self.files[name].digest}"


ASSETS = Assets()


FORBIDDEN = 403

NO_TOKEN = (
    "this page has no token of yours to show to the API server: come through a proxy that adds the header "
    "'Authorization: Bearer TOKEN'"
)
WINDOW_S = 3 * 3600
"""A token is taken for this long at least, and twice as long at most."""

ELSEWHERE = "a form from another site was refused: open this page here, and send the form from it"


class FormGuard:
    """Makes and checks tokens of forms. Another process makes other ones."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds."""
        self._key = secrets.token_bytes(32)
        self._clock = clock

    def token(self, caller: Identity | None) -> str:
        """The token for the forms of a caller."""
        return self._token(caller, self._window())

    def check(self, headers: Mapping[str, str], token: str, caller: Identity | None, *, is_open: bool) -> None:
        """Raises UserError (403) unless the form is of our own page. `is_open`: callers are not known."""
        host = headers.get("Host", "")
        origin = urlsplit(headers.get("Origin", ""))
        if not host or origin.netloc.lower() != host.lower() or origin.scheme not in {"http", "https"}:
            raise UserError(ELSEWHERE, FORBIDDEN)
        if headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
            raise UserError(ELSEWHERE, FORBIDDEN)
        if is_open and not _is_loopback(host):
            raise UserError(f"{host} is no loopback address: this service does not authenticate callers", FORBIDDEN)
        good = [self._token(caller, self._window() - age) for age in (0, 1)]
        if not any(hmac.compare_digest(each.encode(), token.encode("utf-8", "replace")) for each in good):
            raise UserError("the form is too old, or another replica has made it: load the page again", FORBIDDEN)

    def _window(self) -> int:
        return int(self._clock() // WINDOW_S)

    def _token(self, caller: Identity | None, window: int) -> str:
        who = "" if caller is None else f"{caller.name}\n{caller.uid}"
        return hmac.new(self._key, f"{window}\n{who}".encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def _is_loopback(host: str) -> bool:
    """True if `host[:port]` is a loopback address, or localhost."""
    name = urlsplit(f"//{host}").hostname or ""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


PREFIX = PAGE_PATH

BYTES = "application/octet-stream"

POLL_S = 5
"""Seconds after which a visible page asks for its changing part; a page may set another `poll_s`, 0 for never."""

SMALL = 1024
"""Bytes that are not worth compressing."""

FRAGMENT = "HX-Request"
"""The header of a question for the part of a page that changes."""

Headers = tuple[tuple[str, str], ...]

VARY = f"Accept, Accept-Encoding, Authorization, {FRAGMENT}"
"""One address has several answers, by these headers."""

RESTORE = "HX-History-Restore-Request"
"""The header of a question for a whole page, after a step back."""

Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Tab:
    """An entry of the navigation: its name, which is also that of the page's kind, and its path."""

    name: str
    path: str


TABS = (
    Tab("Cluster", f"{PREFIX}/cluster"),
    Tab("Virtual clusters", f"{PREFIX}/vcs"),
    Tab("Queues", f"{PREFIX}/queues"),
    Tab("Jobs", f"{PREFIX}/jobs"),
    Tab("Configuration", f"{PREFIX}/configuration"),
    Tab("Time", f"{PREFIX}/time"),
)


@dataclass(frozen=True)
class Site:
    """The parts that pages are made from. Modules of pages add their paths to `blueprint`."""

    backend: Backend
    gate: Gate
    frames: Frames
    masking: Masking
    blueprint: Blueprint
    counts: Glances[JobCounts] | None
    guard: FormGuard = field(default_factory=FormGuard)

    @property
    def caller(self) -> Identity | None:
        """The caller of the present request, None where callers are not known."""
        caller: Identity | None = g.caller
        return caller

    @contextmanager
    def viewer(self) -> Iterator[KubeClient]:
        """The API server as the caller sees it: with their own token, unless it asks nobody for one.

        Raises UserError (403, 502).

        Errors of its calls are passed on in the API server's words: who may do what is its to say (rule 34.3).
        """
        connect = self._connect()
        if connect is None:
            raise UserError(f"{NO_TOKEN}, or use the command", FORBIDDEN)
        with closing(connect()) as kube:
            try:
                yield kube
            except KubeError as error:
                raise UserError(f"the API server refuses this: {error}", error.status or 502) from error

    def unwatched_jobs(self) -> list[Job]:
        """The jobs that the service does not watch, as far as the caller may read these."""
        found = self.backend.unwatched_jobs
        if found is not None and self.can_act:
            with suppress(UserError), self.viewer() as kube:
                return found(kube)
        return []

    @property
    def can_act(self) -> bool:
        """True if the caller has shown a token, or needs none, so that pages can act for them."""
        return self._connect() is not None

    def _connect(self) -> Callable[[], KubeClient] | None:
        headers = request.headers
        call = Call(request.method, request.path, request.environ.get(CALLER), headers.get("Authorization"))
        token = self.gate.bearer_token(call)
        if token and self.backend.as_bearer is not None:
            return partial(self.backend.as_bearer, token)
        return None if self.gate.knows_callers else self.backend.as_anyone

    def check_form(self, limit: int) -> None:
        """Raises UserError (403) for a form that is not of a page of ours; reads at most so many bytes."""
        request.max_form_memory_size = limit
        is_open = not self.gate.knows_callers
        self.guard.check(dict(request.headers), request.form.get("token", ""), self.caller, is_open=is_open)

    def mask(self) -> Mask:
        """The view of the caller of the present request."""
        return self.masking.of(self.caller)

    @cached_property
    def version(self) -> str:
        """Of hived."""
        return version("hivedscheduler")

    @property
    def tabs(self) -> tuple[Tab, ...]:
        """The pages that this service has."""
        without = set() if self.backend.config_desk is not None else {"Configuration"}
        without |= set() if self.backend.past is not None else {"Time"}
        queues = self.backend.queue_answers
        without |= set() if queues is not None and queues.is_enabled else {"Queues"}
        return tuple(tab for tab in TABS if tab.name not in without)

    def page(self, template: str, tab: str, title: str = "", status: int = 200, **values: Any) -> Response:
        """A page, or its changing part where a page asks for that (`FRAGMENT`)."""
        shown: Values = {
            "tab": tab,
            "title": title or tab,
            "tabs": self.tabs,
            "asset": ASSETS.path,
            "caller": self.caller.name if self.caller is not None else "",
            "version": self.version,
            "base": "part.html" if FRAGMENT in request.headers and RESTORE not in request.headers else "layout.html",
            "here": request.full_path.rstrip("?"),
            "poll_s": POLL_S if request.method == "GET" and status == 200 else 0,
        }
        return self.answer(render_template(template, **shown | values).encode(), HTML, status)

    def json(self, value: Any) -> Response:
        """A value for a script."""
        return self.answer(msgspec.json.encode(value), JSON)

    def answer(self, body: bytes, content_type: str, status: int = 200, headers: Headers = ()) -> Response:
        """A body with its tag; 304 without it for a browser that has it already."""
        tag = f'W/"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
        response = Response(status=status, content_type=content_type)
        response.headers.extend((("Cache-Control", "private, no-cache"), ("Vary", VARY), *headers))
        if status == 200:
            response.headers["ETag"] = tag
            if tag in {each.strip() for each in request.headers.get("If-None-Match", "").split(",")}:
                response.status_code = 304
                del response.headers["Content-Type"]
                return response
        if len(body) > SMALL and request.accept_encodings["gzip"] > 0:
            body = gzip.compress(body, 1, mtime=0)
            response.headers["Content-Encoding"] = "gzip"
        response.set_data(body)
        return response


def add_safety(response: Response) -> Response:
    """The headers of every answer that a browser shows."""
    response.headers.update(SAFETY)
    return response


def page_number() -> int:
    """The page of a list that the present request asks for, from 1."""
    text = request.args.get("rows", "1")
    return int(text) if text.isascii() and text.isdigit() and 0 < len(text) < 9 else 1


def paged(count: int, page: int, size: int) -> Iterator[int]:
    """The numbers of all pages of a list, from 1: the first, the last and those around `page`; 0 for a gap."""
    last = max(1, -(-count // size))
    before = 0
    for number in range(1, last + 1):
        if number in {1, last} or abs(number - page) <= 2:
            if number > before + 1:
                yield 0
            yield number
            before = number
