"""Virtual clusters as pages: what they are promised, use, lend, borrow and could start."""

from flask.testing import FlaskClient

from hived_extender.http.app import create_app
from tests.extender.http.pages.test_cluster_pages import BROWSER, page, text_of
from tests.extender.machine.small_cluster import SmallCluster, node, spec_text


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
