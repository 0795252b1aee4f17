"""`hived certificates`: files and Secrets that a real handshake accepts."""

import base64
import re
import ssl
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from hived.values.errors import UserError
from hived_cli import main
from hived_deploy.certificates import Authority

PAIRS = ("ca", "tls", "client")
FILES = {f"{name}.{ending}" for name in PAIRS for ending in ("crt", "key")}


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["certificates", *words])


def read(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def handshake(folder: Path, hostname: str, *, client: str = "client") -> tuple[dict, dict]:
    """Server and client talk over memory; what each knows of the other."""
    server_side = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=folder / "ca.crt")
    server_side.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    server_side.verify_mode = ssl.CERT_REQUIRED
    client_side = ssl.create_default_context(cafile=folder / "ca.crt")
    client_side.verify_flags |= ssl.VERIFY_X509_STRICT
    client_side.load_cert_chain(folder / f"{client}.crt", folder / f"{client}.key")
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_side.wrap_bio(up, down, server_side=True)
    peer = client_side.wrap_bio(down, up, server_hostname=hostname)
    for one in (peer, server, peer, server):
        try:
            one.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return peer.getpeercert(), server.getpeercert()


@pytest.mark.parametrize(
    "hostname", ["hived", "hived.hived-system.svc", "hived.hived-system.svc.cluster.local", "localhost", "127.0.0.1"]
)
def test_both_sides_accept_each_other(tmp_path, hostname):
    assert run("--out", str(tmp_path)).exit_code == 0
    server, client = handshake(tmp_path, hostname)
    assert client["subject"] == ((("commonName", "hived-kube-scheduler"),),)
    assert ("DNS", "hived.hived-system.svc") in server["subjectAltName"]


def test_the_service_has_the_name_it_is_given(tmp_path):
    assert run("--out", str(tmp_path), "--service", "other", "--namespace", "gpu").exit_code == 0
    handshake(tmp_path, "other.gpu.svc")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(tmp_path, "hived.hived-system.svc")


def test_neither_certificate_does_for_the_other_side(tmp_path):
    run("--out", str(tmp_path))
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
        handshake(tmp_path, "hived", client="tls")


def test_keys_can_be_read_by_their_owner_only(tmp_path):
    out = tmp_path / "new" / "folder"
    result = run("--out", str(out))
    assert {path.name for path in out.iterdir()} == FILES
    modes = {path.name: path.stat().st_mode & 0o777 for path in out.glob("*.key")}
    assert modes == dict.fromkeys(("ca.key", "tls.key", "client.key"), 0o600)
    assert all(f"{out}/{name}" in result.output for name in FILES)
    assert "PRIVATE" not in result.output


def test_what_is_there_is_kept_without_force_and_renewed_by_the_same_ca_with_it(tmp_path):
    run("--out", str(tmp_path))
    before = read(tmp_path)
    refused = run("--out", str(tmp_path))
    assert (refused.exit_code, "--force" in refused.output) == (1, True)
    assert read(tmp_path) == before
    (tmp_path / "tls.key").chmod(0o644)
    assert run("--out", str(tmp_path), "--force").exit_code == 0
    after = read(tmp_path)
    assert {name for name in FILES if before[name] == after[name]} == {"ca.crt", "ca.key"}
    assert (tmp_path / "tls.key").stat().st_mode & 0o777 == 0o600
    handshake(tmp_path, "hived")


def test_certificates_end_when_they_are_told_and_never_after_their_ca(tmp_path):
    run("--out", str(tmp_path), "--days", "30")
    server, _ = handshake(tmp_path, "hived")
    seconds = ssl.cert_time_to_seconds(server["notAfter"]) - ssl.cert_time_to_seconds(server["notBefore"])
    assert 30 * 86400 <= seconds <= 30 * 86400 + 600
    short = Authority.create(days=1)
    (tmp_path / "ca.crt").write_bytes(short.pair.certificate)
    (tmp_path / "ca.key").write_bytes(short.pair.key)
    result = run("--out", str(tmp_path), "--days", "30", "--force")
    assert (result.exit_code, f"Renew both before {short.expires_at:%Y-%m-%d}:" in result.output) == (0, True)
    server, _ = handshake(tmp_path, "hived")
    assert ssl.cert_time_to_seconds(server["notAfter"]) <= short.expires_at.timestamp()


def test_secrets_can_be_printed_of_what_is_written(tmp_path):
    result = run("--out", str(tmp_path), "--as-secrets")
    for secret, file in zip(yaml.safe_load_all(result.output), ("tls", "client"), strict=True):
        for key, path in (("ca.crt", "ca.crt"), ("tls.crt", f"{file}.crt"), ("tls.key", f"{file}.key")):
            assert base64.b64decode(secret["data"][key]) == (tmp_path / path).read_bytes()


def test_secrets_hold_the_same_and_no_key_of_the_ca(tmp_path):
    result = run("--as-secrets", "--namespace", "gpu")
    secrets = {secret["metadata"]["name"]: secret for secret in yaml.safe_load_all(result.output)}
    assert set(secrets) == {"hived-extender-tls", "hived-scheduler-client-tls"}
    for name, file in (("hived-extender-tls", "tls"), ("hived-scheduler-client-tls", "client")):
        secret = secrets[name]
        assert (secret["kind"], secret["type"]) == ("Secret", "kubernetes.io/tls")
        assert secret["metadata"]["namespace"] == "gpu"
        assert set(secret["data"]) == {"ca.crt", "tls.crt", "tls.key"}
        for key, value in secret["data"].items():
            (tmp_path / key.replace("tls.", f"{file}.")).write_bytes(base64.b64decode(value))
    handshake(tmp_path, "hived.gpu.svc")
    assert len(re.findall("tls.key", result.output)) == 2


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([], 2, "--out DIR, --as-secrets or both"),
        (["--as-secrets", "--service", "Hived!"], 2, "expected a name of Kubernetes"),
        (["--as-secrets", "--namespace", "a.b"], 2, "expected a name of Kubernetes"),
        (["--as-secrets", "--days", "0"], 2, "--days"),
        (["--out", "/proc/nowhere"], 1, "cannot write to /proc/nowhere"),
    ],
)
def test_mistakes_are_answered_with_what_was_expected(words, code, message):
    result = run(*words)
    assert (result.exit_code, message in result.output) == (code, True), result.output


@pytest.mark.parametrize("broken", ["key of another", "no key", "garbage", "no ca"])
def test_a_ca_that_cannot_sign_is_an_error_that_names_its_files(tmp_path, broken):
    authority = Authority.create()
    pair = authority.client("somebody", 1) if broken == "no ca" else authority.pair
    (tmp_path / "ca.crt").write_bytes(b"x" if broken == "garbage" else pair.certificate)
    if broken != "no key":
        key = Authority.create().pair.key if broken == "key of another" else pair.key
        (tmp_path / "ca.key").write_bytes(key)
    result = run("--out", str(tmp_path))
    assert (result.exit_code, f"the CA of {tmp_path}" in result.output) == (1, True)
    assert len(list(tmp_path.iterdir())) <= 2


def test_a_ca_that_has_expired_signs_nothing():
    with pytest.raises(UserError, match="the CA has expired on 20"):
        Authority.create(days=-1)
