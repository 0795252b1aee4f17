"""How a page is answered: its headers, its tag, its form as a whole page or as the part that a page asks for again.

No page has a script or a style of its own: the policy allows files of this server alone. A page is never kept without
asking again, and whoever has it already gets 304.
"""

import gzip
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from typing import Any

import msgspec
from flask import Blueprint, Response, g, render_template, request

from hived_extender.api.paths import PAGE_PATH
from hived_extender.http.access import Gate
from hived_extender.http.answers import JSON
from hived_extender.http.identities import Identity
from hived_extender.http.masking import Mask, Masking
from hived_extender.http.pages.assets import ASSETS
from hived_extender.http.pages.frames import Frames
from hived_extender.http.routing import Backend

PREFIX = PAGE_PATH

HTML = "text/html; charset=utf-8"
BYTES = "application/octet-stream"

POLICY = "default-src 'self'; base-uri 'none'; object-src 'none'; form-action 'self'; frame-ancestors 'none'"

SAFETY = (
    ("Content-Security-Policy", POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)

POLL_S = 5
"""How often a page asks for its changing part, while somebody looks; a page may set another `poll_s`, 0 for never."""

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

    @property
    def caller(self) -> Identity | None:
        """The caller of the present request, None where callers are not known."""
        caller: Identity | None = g.caller
        return caller

    def mask(self) -> Mask:
        """What the caller of the present request may see."""
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
        """A body with its tag; 304 without it for whoever has it already."""
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
    response.headers.extend(SAFETY)
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
