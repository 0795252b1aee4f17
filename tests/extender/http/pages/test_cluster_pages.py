"""The cluster and virtual clusters as pages: readable without a script, and with nothing that the policy forbids."""

import re

import pytest
from flask.testing import FlaskClient

from hived_extender.http.access import Gate, Reviews
from hived_extender.http.app import create_app
from hived_extender.http.browsers import POLICY
from hived_extender.http.pages.site import ASSETS, paged
from tests.extender.http.secured import ReviewServer
from tests.extender.machine.small_cluster import SmallCluster, node, preempt_args, spec_text

pytestmark = pytest.mark.sample(19)

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


@pytest.fixture
def small() -> SmallCluster:
    return SmallCluster(bad_nodes=("n3",))


@pytest.fixture
def client(small: SmallCluster) -> FlaskClient:
    return create_app(small.service).test_client()


def text_of(html: str) -> str:
    """The words of a page, as somebody without a picture reads them."""
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def page(client: FlaskClient, path: str, **headers: str) -> str:
    response = client.get(path, headers={"Accept": BROWSER, **headers})
    assert (response.status_code, response.content_type) == (200, "text/html; charset=utf-8"), response.text
    return response.text


@pytest.mark.parametrize("accept", ["*/*", "application/json", "application/json, text/plain, */*", "", "text/plain"])
def test_programs_get_the_list_of_paths_at_the_root(client: FlaskClient, accept: str) -> None:
    response = client.get("/", headers={"Accept": accept} if accept else {})
    assert "/openapi.json" in response.json["paths"]
    assert "Accept" in response.headers["Vary"]


def test_browsers_get_the_cluster_at_the_root(client: FlaskClient) -> None:
    assert "<h1>Cluster</h1>" in page(client, "/")


@pytest.mark.parametrize(
    "path", ["/", "/page/cluster", "/page/cluster?in=0.3.0", "/page/vcs", "/page/vcs/a", "/page/glossary", "/page/none"]
)
def test_a_page_has_nothing_that_its_policy_forbids(client: FlaskClient, path: str) -> None:
    response = client.get(path, headers={"Accept": BROWSER})
    assert response.headers.get("Content-Security-Policy", POLICY) == POLICY
    scripts = re.findall(r"<script([^>]*)>([^<]*)</script>", response.text)
    assert all("src=" in attributes and not body for attributes, body in scripts)
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:|https?://(?!www\.w3\.org)", response.text)


def test_the_foot_of_each_page_leads_to_the_glossary(client: FlaskClient) -> None:
    assert "<footer>" in (html := page(client, "/page/vcs"))
    assert 'href="/page/glossary"' in html.partition("<footer>")[2]
    assert "gang Pods that start together or not at all." in text_of(page(client, "/page/glossary"))


def test_every_file_that_a_page_names_is_served_and_may_be_kept(client: FlaskClient) -> None:
    files = set(re.findall(r'(?:src|href)="(/page/static/[^"]+)"', page(client, "/")))
    assert len(files) >= 5
    for file in files:
        response = client.get(file, headers={"Accept-Encoding": "identity"})
        assert response.status_code == 200
        assert "immutable" in response.headers["Cache-Control"]
        assert response.data == ASSETS.files[file.partition("?")[0].removeprefix("/page/static/")].body


@pytest.mark.parametrize("name", ["none.js", "../site.py", "../templates/layout.html", "%2e%2e/site.py", "/etc/passwd"])
def test_no_other_file_is_served(client: FlaskClient, name: str) -> None:
    assert client.get(f"/page/static/{name}").status_code == 404


def test_the_table_says_what_the_picture_shows(small: SmallCluster, client: FlaskClient) -> None:
    small.place("p", spec_text(leaf_cells=2))
    words = text_of(page(client, "/page/cluster?in=0.4.0"))
    assert "n0 NODE Used Healthy 2 used by a 2 free ns/p 2 GPUs, a, priority 0 n1" in words
    assert "n1 NODE Free Healthy 4 free" in words
    assert "n3 NODE Free 4 bad of 4: NotReady 4 bad" in words
    assert "1 RACK 4 NODE 8 PAIR 16 GPU" in words


def test_the_table_leads_down_to_leaf_cells(client: FlaskClient) -> None:
    assert 'href="/page/cluster?in=0.3.1#cells-table"' in page(client, "/page/cluster?in=0.4.0")
    assert "n1 0 PAIR" not in text_of(page(client, "/page/cluster?in=0.3.1")), "the cells below, not the node"
    assert text_of(page(client, "/page/cluster?in=0.2.2")).count("GPU Free Healthy 1 free") == 2


@pytest.mark.parametrize("where", ["0.9.0", "9.1.0", "0.4.7", "x", "0.1", "0.1.0", "0.4.0&rows=x"])
def test_cells_that_do_not_exist_are_a_page_that_says_so(client: FlaskClient, where: str) -> None:
    response = client.get(f"/page/cluster?in={where}", headers={"Accept": BROWSER})
    assert response.status_code in {400, 404}
    assert '<p class="error" role="alert">' in response.text


def test_a_page_that_has_not_changed_is_not_sent_again(small: SmallCluster, client: FlaskClient) -> None:
    tag = client.get("/page/cells/tiles?at=0.3.0-4").headers["ETag"]
    same = client.get("/page/cells/tiles?at=0.3.0-4", headers={"If-None-Match": tag})
    assert (same.status_code, same.data) == (304, b"")
    small.place("p")
    fresh = create_app(small.service).test_client()
    assert fresh.get("/page/cells/tiles?at=0.3.0-4", headers={"If-None-Match": tag}).status_code == 200


ACCEPTS = ("*/*", "text/html, */*", BROWSER, "application/json", "text/plain", "")
"""Headers of polls: that of htmx, those of other versions and of browsers, and none."""


@pytest.mark.parametrize("accept", ACCEPTS)
@pytest.mark.parametrize("path", ["/", "/page/cluster?in=0.3.0", "/page/vcs", "/page/vcs/a", "/page/jobs"])
def test_a_poll_gets_the_changing_part_alone(client: FlaskClient, path: str, accept: str) -> None:
    whole = page(client, path)
    asked = re.search(r'hx-get="([^"]+)"', whole)
    assert asked is not None
    headers = {"HX-Request": "true"} | ({"Accept": accept} if accept else {})
    part = client.get(asked[1], headers=headers)
    assert (part.status_code, part.content_type) == (200, "text/html; charset=utf-8")
    assert "HX-Request" in part.headers["Vary"]
    assert "<h1>" not in part.text
    apart = re.compile(r'<ul [^>]*id="totals".*?</ul>', re.DOTALL)  # stands above the picture
    assert text_of(apart.sub("", part.text)) in text_of(whole)
    assert text_of("".join(apart.findall(part.text))) in text_of(whole)
    again = client.get(path, headers={**headers, "HX-History-Restore-Request": "true"})
    assert "<h1>" in again.text


def test_tiles_name_their_layout(client: FlaskClient) -> None:
    layout = client.get("/page/cells/layout").json
    tiles = client.get("/page/cells/tiles?at=0.4.0-1")
    assert tiles.headers["X-Layout"] == layout["id"]


def test_one_cell_is_told_in_a_line(small: SmallCluster, client: FlaskClient) -> None:
    small.place("p", spec_text(leaf_cells=2))
    one = page(client, "/page/cells/one?at=0.3.0-1")
    assert text_of(one) == (
        "n0 in 0 , NODE, Used, Healthy : 2 used by a, 2 free · this node · in the table ns/p 2 GPUs, a, priority 0"
    )
    assert 'href="/page/jobs/ns/p"' in one
    assert 'href="/page/nodes/n0"' in one
    assert "node n0" in text_of(page(client, "/page/cells/one?at=0.1.0-1"))
    assert client.get("/page/cells/one?at=0.3.0-2").status_code == 400


def test_the_cluster_is_told_in_a_line_with_its_bad_nodes(small: SmallCluster, client: FlaskClient) -> None:
    small.place("p", spec_text(leaf_cells=2))
    small.place("lent", spec_text(vc="b", leaf_cells=4, priority=-1))
    small.filter(small.create("waits", spec_text(vc="empty")))
    words = text_of(page(client, "/page/cluster"))
    assert "38 % of 16 GPUs used 4 lent 1 job waits 1 node bad" in words
    assert "Bad nodes Node Why, and since when Jobs on it n3 NotReady none" in words
    assert "lent by" not in words


def test_lent_cells_say_whose_they_are(small: SmallCluster, client: FlaskClient) -> None:
    small.place("p", spec_text(leaf_cells=1, group="a/held"))
    borrower = small.create("lent", spec_text(vc="b", leaf_cells=1, priority=-1))
    assert small.filter(borrower, ["n0"])["NodeNames"] == ["n0"]
    small.bind(borrower, "n0")
    small.see(borrower)
    lent = text_of(page(client, "/page/nodes/n0"))
    assert "ns/lent 1 GPU, b, opportunistic ; lent to b by a: it leaves when a needs them" in lent
    small.place("far", spec_text(vc="b", leaf_cells=4, priority=-1))
    assert (
        "ns/far 4 GPUs, b, opportunistic ; lent to b: no guaranteed job needs them now, and it leaves when one does"
        in text_of(page(client, "/page/cluster?in=0.4.0"))
    )


def test_reserved_cells_name_the_job_that_waits_and_the_one_that_leaves(
    small: SmallCluster, client: FlaskClient
) -> None:
    for name in ("one", "two", "three"):
        small.place(name, spec_text(vc="b", leaf_cells=4, priority=-1))
    owner = small.create("owner", spec_text(vc="a", leaf_cells=4))
    small.filter(owner)
    small.service.preempt_victims(preempt_args(owner))
    words = text_of(page(client, "/page/cluster?in=0.4.0"))
    assert "ns/owner 4 GPUs, a, priority 0 ; reserved, others still use them" in words


def test_a_node_has_a_page_with_its_gpus_and_jobs(small: SmallCluster, client: FlaskClient) -> None:
    pod, name = small.place("p", spec_text(leaf_cells=2))
    words = text_of(page(client, f"/page/nodes/{name}"))
    assert f"Node {name}" in words
    assert "Healthy." in words
    assert "4 GPUs NODE in 0 2 used by a 2 free Jobs on it ns/p 2 GPUs" in words
    assert words.count("GPU Used Healthy 1 used by a ns/p 1 GPU, a, priority 0") == 2
    small.service.node_seen(node(name, is_cordoned=True))
    fresh = text_of(page(client_of(small), f"/page/nodes/{name}"))
    assert "Bad: cordoned" in fresh
    small.delete(pod)
    missing = client.get("/page/nodes/n10", headers={"Accept": BROWSER})
    assert missing.status_code == 404
    assert "nearest: n" in text_of(missing.text)


def test_a_replica_that_does_not_lead_says_so_on_a_page() -> None:
    client = create_app(SmallCluster(is_leading=False).service).test_client()
    for path in ("/", "/page/vcs"):
        response = client.get(path, headers={"Accept": BROWSER})
        assert response.status_code == 503
        assert "Not ready here" in response.text
        assert response.headers["Refresh"] == "5"


def test_long_lists_have_pages_around_the_present_one() -> None:
    assert list(paged(10, 1, 64)) == [1]
    assert list(paged(0, 1, 64)) == [1]
    assert list(paged(640, 5, 64)) == [1, 0, 3, 4, 5, 6, 7, 0, 10]
    assert list(paged(640, 1, 64)) == [1, 2, 3, 0, 10]


def test_names_that_look_like_html_are_shown_as_they_are() -> None:
    small = SmallCluster()
    client = create_app(small.service).test_client()
    response = client.get("/page/vcs/<script>alert(1)</script>", headers={"Accept": BROWSER})
    assert response.status_code == 404
    assert "<script>alert" not in response.text
    assert "&lt;script&gt;alert(1)" in response.text


def test_whom_the_gate_refuses_is_told_so_on_a_page() -> None:
    with ReviewServer.running({"t": {"username": "stranger"}}, set()) as server:
        client = create_app(SmallCluster().service, Gate(None, Reviews(server.kube))).test_client()
        for path in ("/", "/page/cluster", "/page/jobs/ns:p", "/v1/inspect/jobs", "/nothing"):
            unknown = client.get(path, headers={"Accept": BROWSER})
            assert (unknown.status_code, unknown.mimetype) == (401, "text/html")
            assert "WWW-Authenticate" in unknown.headers
            assert "<h1>Not signed in</h1>" in unknown.text
            stranger = client.get(path, headers={"Accept": BROWSER, "Authorization": "Bearer t"})
            assert (stranger.status_code, stranger.mimetype) == (403, "text/html")
            assert "stranger may not do this" in stranger.text
            assert "hived-viewer" in stranger.text
            assert stranger.headers.getlist("Content-Security-Policy") == [POLICY]
            assert client.get(path).mimetype == "application/json"


def client_of(small: SmallCluster) -> FlaskClient:
    return create_app(small.service).test_client()


def test_the_list_counts_leaf_cells_and_whole_nodes() -> None:
    small = SmallCluster()
    small.place("p", spec_text(leaf_cells=2))
    words = text_of(page(client_of(small), "/page/vcs"))
    assert "a 8 2 0 0 6 0 1 of 2 NODE" in words
    assert "b 4 0 0 0 4 0 1 of 1 NODE" in words
    assert "empty 0 0 0 0 0 0 nothing is promised" in words


def test_a_virtual_cluster_shows_each_level() -> None:
    small = SmallCluster()
    small.place("p", spec_text(leaf_cells=2))
    words = text_of(page(client_of(small), "/page/vcs/a"))
    assert "RACK NODE (node) 4 1 0 1 0 2 0" in words
    assert "RACK GPU 1 6 0 2 0 8 0" in words


def test_borrowed_cells_are_counted_for_the_borrower() -> None:
    small = SmallCluster()
    small.place("p", spec_text(vc="b", leaf_cells=4, priority=-1))
    assert "4 used by its own opportunistic jobs" in text_of(page(client_of(small), "/page/vcs/b"))


def test_an_unknown_virtual_cluster_is_not_found_and_the_known_ones_are_named() -> None:
    response = client_of(SmallCluster()).get("/page/vcs/none", headers={"Accept": BROWSER})
    assert response.status_code == 404
    assert "there are: a, b, empty" in text_of(response.text)


def test_bad_cells_in_use_are_counted_as_in_use_and_named_as_both() -> None:
    small = SmallCluster()
    _, used = small.place("p", spec_text())
    small.service.node_seen(node(used, is_ready=False))
    client = client_of(small)
    assert "a 8 4 0 0 4 0" in text_of(page(client, "/page/vcs"))
    assert "count as in use , not as bad" in text_of(page(client, "/page/vcs"))
    assert "4 used by a and bad" in text_of(page(client, "/page/cluster"))
