"""TLS on real sockets: who gets a connection, certificates that change on disk, clients that misbehave."""

import http.client
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization as form

from hived.values.errors import UserError
from hived_deploy.certificates import Authority
from hived_extender.api.paths import FILTER_PATH
from hived_extender.http import server
from hived_extender.http.guard import Limits
from hived_extender.http.tls import ServerTls
from tests.extender.http.secured import HOSTS, Files, Secured, call_on
from tests.extender.machine.small_cluster import PATIENCE_S, filter_body

REFUSED = (ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)
LONG_AGO = -1
NEVER_S = 3600


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.fixture
def secured(files: Files) -> Iterator[Secured]:
    with Secured.running(files) as secured:
        yield secured


def serial(secured: Secured) -> str:
    """The number of the certificate that the server shows to a new connection."""
    with closing(secured.connect()) as connection:
        connection.connect()
        return str(connection.sock.getpeercert()["serialNumber"])


def filter_status(secured: Secured, client: str) -> int:
    return secured.call("POST", FILTER_PATH, filter_body(secured.cluster.create("p")), client=client)[0]


def test_one_connection_serves_call_after_call(secured: Secured) -> None:
    with closing(secured.connect("scheduler")) as connection:
        connection.connect()
        port = connection.sock.getsockname()[1]
        for name in ("p", "q"):
            body = filter_body(secured.cluster.create(name))
            assert len(call_on(connection, "POST", FILTER_PATH, body)[1]["NodeNames"]) == 1
        assert connection.sock.getsockname()[1] == port


def test_the_verbs_are_for_the_client_that_is_named(files: Files, secured: Secured) -> None:
    files.client("other", "system:kube-controller-manager")
    for client, expected in (("scheduler", 200), ("other", 403), ("", 401)):
        with closing(secured.connect(context=files.context(client))) as connection:
            assert call_on(connection, "POST", FILTER_PATH, filter_body(secured.cluster.create("p")))[0] == expected


def test_versions_before_1_3_are_refused(files: Files, secured: Secured) -> None:
    context = files.context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(REFUSED), closing(secured.connect(context=context)) as connection:
        connection.connect()


def expired(files: Files) -> str:
    return files.client("bad", "hived-kube-scheduler", days=LONG_AGO)


def of_another_ca(files: Files) -> str:
    return files.client("bad", "hived-kube-scheduler", by=Authority.create())


def for_servers(files: Files) -> str:
    return files.write("bad", files.authority.server(["hived-kube-scheduler"], 1))


@pytest.mark.parametrize("make", [expired, of_another_ca, for_servers])
def test_a_certificate_that_does_not_count_gets_no_connection(
    files: Files, secured: Secured, make: Callable[[Files], str]
) -> None:
    bad = make(files)
    with pytest.raises(REFUSED):
        filter_status(secured, bad)
    assert filter_status(secured, "scheduler") == 200


def test_no_session_is_resumed(files: Files, secured: Secured) -> None:
    context = files.context("scheduler")
    with closing(secured.connect(context=context)) as connection:
        call_on(connection, "GET", "/healthz")
        session = connection.sock.session
    with socket.create_connection(("127.0.0.1", secured.port)) as plain:
        again = context.wrap_socket(plain, server_hostname="127.0.0.1", session=session)
        assert not again.session_reused
        again.close()


class TestRenewal:
    """Files that change while the server runs."""

    def test_a_renewed_pair_is_shown_to_new_connections_and_old_ones_go_on(
        self, files: Files, secured: Secured
    ) -> None:
        before = serial(secured)
        with closing(secured.connect("scheduler")) as connection:
            assert call_on(connection, "GET", "/healthz")[0] == 200
            files.renew()
            assert serial(secured) != before
            assert call_on(connection, "GET", "/healthz")[0] == 200

    def test_a_pair_behind_a_link_that_is_turned_is_renewed(self, files: Files) -> None:
        """As kubelet does it with the files of a Secret."""
        files.client("unused", "unused")
        for generation in ("1", "2"):
            (files.folder / generation).mkdir()
            Files(files.folder / generation, files.authority)
        (files.folder / "now").symlink_to("1")
        mounted = Files(files.folder, files.authority)
        mounted.certificate, mounted.key = files.folder / "now" / "tls.crt", files.folder / "now" / "tls.key"
        with Secured.running(mounted) as secured:
            before = serial(secured)
            (files.folder / "next").symlink_to("2")
            os.replace(files.folder / "next", files.folder / "now")
            assert serial(secured) != before

    @pytest.mark.parametrize("what", ["half", "empty", "garbage", "gone", "other key"])
    def test_a_broken_pair_leaves_the_old_one_in_force_until_it_is_whole(
        self, files: Files, secured: Secured, caplog: pytest.LogCaptureFixture, what: str
    ) -> None:
        before, whole = serial(secured), files.key.read_bytes()
        if what == "gone":
            files.key.unlink()
        elif what == "other key":
            files.key.write_bytes(files.authority.server(HOSTS, 1).key)
        else:
            files.key.write_bytes({"half": whole[:100], "empty": b"", "garbage": b"\x00\xff" * 50}[what])
        for _ in range(3):
            assert serial(secured) == before
        failures = [record for record in caplog.records if "not renewed" in record.message]
        assert len(failures) == 1
        assert str(files.key) in failures[0].fields["error"]
        files.renew()
        assert serial(secured) != before

    def test_a_clients_ca_that_is_replaced_counts_no_more(self, files: Files, secured: Secured) -> None:
        other = Authority.create()
        files.client("new", "hived-kube-scheduler", by=other)
        assert filter_status(secured, "scheduler") == 200
        trusted = {name: files.context(name) for name in ("scheduler", "new")}
        files.ca.write_bytes(other.pair.certificate)
        body = filter_body(secured.cluster.create("p"))
        with closing(secured.connect(context=trusted["new"])) as connection:
            assert call_on(connection, "POST", FILTER_PATH, body)[0] == 200
        with pytest.raises(REFUSED), closing(secured.connect(context=trusted["scheduler"])) as connection:
            call_on(connection, "POST", FILTER_PATH, body)


class TestMisbehaviour:
    """Connections that misbehave hold nobody else up."""

    def test_plain_http_gets_no_answer(self, secured: Secured, caplog: pytest.LogCaptureFixture) -> None:
        with socket.create_connection(("127.0.0.1", secured.port), timeout=PATIENCE_S) as plain:
            plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = b"".join(iter(lambda: plain.recv(1000), b""))
        assert b"HTTP/" not in answer
        assert secured.call("GET", "/healthz")[0] == 200
        assert not [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")]

    def test_clients_that_begin_a_handshake_and_fall_asleep(
        self, files: Files, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(server, "limits_of_process", lambda: Limits(handshake_s=NEVER_S))
        hello = ssl.MemoryBIO()
        client = files.context().wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost")
        with pytest.raises(ssl.SSLWantReadError):
            client.do_handshake()
        first = hello.read()
        with Secured.running(files) as secured, ExitStack() as asleep:
            for i in range(50):
                connection = asleep.enter_context(socket.create_connection(("127.0.0.1", secured.port)))
                connection.sendall(first[: i * len(first) // 50])
            assert filter_status(secured, "scheduler") == 200

    def test_an_idle_connection_whose_client_is_asleep_does_not_hold_up_the_end(
        self, files: Files, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(server, "DRAIN_TIMEOUT_S", NEVER_S)
        with Secured.running(files) as secured, closing(secured.connect("scheduler")) as connection:
            call_on(connection, "GET", "/healthz")
            stopping = threading.Thread(target=secured.server.stop)
            stopping.start()
            stopping.join(PATIENCE_S)
            assert not secured.server.is_alive


def test_an_https_server_without_a_ca_for_clients_asks_for_none(files: Files) -> None:
    tls = ServerTls(files.certificate, files.key)
    assert not tls.verifies_clients
    assert tls.context.verify_mode is ssl.CERT_NONE


@pytest.mark.parametrize("option", ["certificate", "key", "ca"])
@pytest.mark.parametrize("what", ["gone", "folder", "empty", "garbage"])
def test_files_that_cannot_be_used_are_an_error_that_names_them(files: Files, option: str, what: str) -> None:
    path = getattr(files, option)
    path.unlink()
    if what == "folder":
        path.mkdir()
    elif what != "gone":
        path.write_bytes(b"" if what == "empty" else b"-----BEGIN CERTIFICATE-----\nnonsense\n")
    with pytest.raises(UserError, match="expected") as caught:
        files.tls()
    assert str(path) in caught.value.message


def test_a_key_of_another_certificate_or_with_a_passphrase_is_an_error(files: Files) -> None:
    own = files.key.read_bytes()
    files.key.write_bytes(files.authority.server(HOSTS, 1).key)
    with pytest.raises(UserError, match="a key that belongs to another certificate"):
        files.tls()
    files.key.write_bytes(encrypted(own))
    with pytest.raises(UserError, match="without a passphrase"):
        files.tls()


def encrypted(key: bytes) -> bytes:

    private = form.load_pem_private_key(key, None)
    secret = form.BestAvailableEncryption(b"secret")
    return private.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, secret)
