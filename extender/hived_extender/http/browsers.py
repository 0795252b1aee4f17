"""Answers for people with a browser: headers that keep a page safe, and refusals as short pages.

Programs get JSON. A page here has no styles, which lie behind the gate as well.
"""

import html

import msgspec
from msgspec.structs import replace
from werkzeug.datastructures import MIMEAccept
from werkzeug.http import parse_accept_header

from hived_extender.http.answers import JSON, Answer

HTML = "text/html; charset=utf-8"

POLICY = "default-src 'self'; base-uri 'none'; object-src 'none'; form-action 'self'; frame-ancestors 'none'"

SAFETY = (
    ("Content-Security-Policy", POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)

UNKNOWN, FORBIDDEN = 401, 403

_TITLES = {UNKNOWN: "Not signed in", FORBIDDEN: "Not allowed"}
_REMEDIES = {
    UNKNOWN: "A browser has to show a client certificate, or to come through a proxy that adds a token of its user.",
    FORBIDDEN: "Commands say the same; the administrator of the cluster can change it.",
}
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title} · hived</title>
</head>
<body>
<main>
<h1>{title}</h1>
<p>{message}</p>
<p>{remedy}</p>
</main>
</body>
</html>
"""


def prefers_html(accept: str) -> bool:
    """True of an Accept header that prefers HTML to JSON, as that of a browser does."""
    return parse_accept_header(accept, MIMEAccept).best_match([JSON, "text/html"]) == "text/html"


def shown(answer: Answer, accept: str) -> Answer:
    """An answer; as a page if it says that the caller is not known or may not do this, and `accept` prefers HTML."""
    if answer.status not in _TITLES or answer.content_type != JSON or not prefers_html(accept):
        return answer
    assert isinstance(answer.body, bytes)
    message = html.escape(msgspec.json.decode(answer.body, type=str))
    page = _PAGE.format(title=_TITLES[answer.status], message=message, remedy=_REMEDIES[answer.status])
    headers = (*answer.headers, *SAFETY, ("Cache-Control", "no-store"))
    return replace(answer, body=page.encode(), content_type=HTML, headers=headers)
