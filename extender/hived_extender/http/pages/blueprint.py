"""All pages as one Flask blueprint, behind the gate of the application that it is registered with."""

from flask import Blueprint, Response, abort, request
from werkzeug.exceptions import HTTPException

from hived.values.errors import HivedError, UserError
from hived_extender.api import paths
from hived_extender.api.inspection import duration
from hived_extender.api.waiting import MASKED, rank, rank_in_words
from hived_extender.http.access import Gate
from hived_extender.http.browsers import prefers_html
from hived_extender.http.masking import Masking
from hived_extender.http.pages import (
    cluster_pages,
    configuration_pages,
    glossary,
    jobs_pages,
    submit_page,
    time_pages,
)
from hived_extender.http.pages.cells import Frames
from hived_extender.http.pages.site import ASSETS, FRAGMENT, PREFIX, TABS, Site, add_safety
from hived_extender.http.routing import Backend
from hived_extender.insight.queued import glances_at_counts

FOREVER = "public, max-age=31536000, immutable"
UNAVAILABLE = 503
AGAIN_S = 5
"""After how long a browser asks again for a page that this replica cannot show yet."""


def pages(backend: Backend, gate: Gate) -> Site:
    """Every page. Cheap: nothing is read before the first request."""
    blueprint = Blueprint("pages", __name__, template_folder="templates", url_prefix=None)
    blueprint.add_app_template_filter(_job_path, "job_path")
    blueprint.add_app_template_filter(rank)
    blueprint.add_app_template_filter(rank_in_words)
    blueprint.add_app_template_filter(duration, "duration")
    blueprint.add_app_template_filter(paths.page_node_path, "node_path")
    counts = None if backend.answering is None else glances_at_counts(backend.answering, backend.queue_answers)
    site = Site(backend, gate, Frames(backend.service.reader), backend.masking or Masking(gate), blueprint, counts)
    blueprint.add_url_rule(f"{PREFIX}/static/<path:name>", "static", _static)
    for module in (cluster_pages, jobs_pages, submit_page, configuration_pages, time_pages, glossary):
        module.add_pages(site)
    blueprint.add_url_rule(f"{PREFIX}/<path:rest>", "missing", _missing)
    blueprint.after_request(add_safety)

    def failed(error: Exception) -> Response:
        return _failed(site, error)

    blueprint.register_error_handler(HivedError, failed)
    blueprint.register_error_handler(HTTPException, failed)
    return site


def _job_path(name: str) -> str:
    """The path of the page of a job, "" for one that the caller may not see."""
    return "" if name == MASKED else paths.page_job_path(name)


def wants_page() -> bool:
    """True if the present request prefers HTML to JSON, as browsers do, or if a page asks for a part of itself."""
    return prefers_html(accepted())


def accepted() -> str:
    """The Accept header of the present request; a page that asks for a part of itself does not say HTML."""
    return "text/html" if FRAGMENT in request.headers else request.headers.get("Accept", "")


def front_page(site: Site) -> Response:
    """The page at `/`, which lies outside the blueprint."""
    try:
        response = cluster_pages.cluster_page(site)
    except HivedError as error:
        response = _failed(site, error)
    return add_safety(response)


def _static(name: str) -> Response:
    asset = ASSETS.files.get(name)
    if asset is None:
        abort(404)
    takes_gzip = request.accept_encodings["gzip"] > 0
    response = Response(asset.compressed if takes_gzip else asset.body, content_type=asset.content_type)
    response.headers["Cache-Control"] = FOREVER if request.args.get("v") == asset.digest else "no-cache"
    response.headers["Vary"] = "Accept-Encoding"
    if takes_gzip:
        response.headers["Content-Encoding"] = "gzip"
    return response


def _missing(rest: str) -> Response:
    raise UserError(f"there is no page {PREFIX}/{rest}", 404)


def _failed(site: Site, error: Exception) -> Response:
    """A page that says what is wrong, and what to do."""
    status, message = 500, "The log of the scheduler has the details."
    if isinstance(error, UserError):
        status, message = error.code, error.message
    elif isinstance(error, HivedError):
        message = str(error)
    elif isinstance(error, HTTPException):
        status, message = error.code or 500, error.description or ""
    title = {UNAVAILABLE: "Not ready here", 404: "Not found"}.get(status, "That went wrong")
    response = site.page("error.html", _tab_of(request.path), title, status, message=message)
    if status == UNAVAILABLE and request.method == "GET":
        response.headers["Refresh"] = str(AGAIN_S)
    return response


def _tab_of(path: str) -> str:
    """The tab that a path lies behind, "" for none."""
    return next((tab.name for tab in TABS if path == tab.path or path.startswith(f"{tab.path}/")), "")
