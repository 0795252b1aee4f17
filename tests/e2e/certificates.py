"""A certificate authority for one control plane, and the certificates and kubeconfig files that it hands out."""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

BEFORE = LIFETIME = datetime.timedelta(days=1)
LOOPBACK = "127.0.0.1"


Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(frozen=True, slots=True)
class KeyPair:
    """Files with a certificate and its private key, both PEM."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates that hold from a day ago, as clocks may jump, and writes them into its folder.

    A client is the user and the groups that its certificate names; a server is known by loopback and by its names.

    Parameters
    ----------
    name : its own name
    lifetime : how long after now its certificates hold
    key : its own key
    """

    def __init__(
        self,
        folder: Path,
        name: str = "hived-e2e",
        lifetime: datetime.timedelta = LIFETIME,
        key: Key | None = None,
    ) -> None:
        self._folder = folder
        self._lifetime = lifetime
        folder.mkdir(parents=True, exist_ok=True)
        self._key = key or ec.generate_private_key(ec.SECP256R1())
        self._name = _subject(name, ())
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        certificate = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.pair = self._write("ca", certificate.public_bytes(serialization.Encoding.PEM), self._key)
        self.file = self.pair.certificate

    def client(self, user: str, groups: Sequence[str] = ()) -> KeyPair:
        """A certificate with which Kubernetes takes its owner for `user`, a member of `groups`."""
        return self._issue(user, groups, ExtendedKeyUsageOID.CLIENT_AUTH, ())

    def server(self, name: str, names: Sequence[str] = ()) -> KeyPair:
        """A certificate for a server on loopback that is also known by `names`."""
        return self._issue(name, (), ExtendedKeyUsageOID.SERVER_AUTH, ("localhost", *names))

    def signing_key(self, name: str) -> KeyPair:
        """A key pair of its own for signing tokens; `certificate` holds the bare public key."""
        key = ec.generate_private_key(ec.SECP256R1())
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return self._write(name, public, key)

    def kubeconfig(self, name: str, server: str, *, client: KeyPair | None = None, token: str = "") -> Path:
        """A kubeconfig file for the API server at `server`, with a client certificate or a token."""
        user = {"client-certificate": str(client.certificate), "client-key": str(client.key)} if client else {}
        if token:
            user["token"] = token
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "e2e", "cluster": {"server": server, "certificate-authority": str(self.file)}}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": name, "namespace": "default"}}],
            "current-context": "e2e",
        }
        file = self._folder / f"{_file_name(name)}.kubeconfig"
        file.write_text(yaml.safe_dump(document, sort_keys=False))
        return file

    def _issue(
        self, name: str, groups: Sequence[str], usage: x509.ObjectIdentifier, dns_names: Sequence[str]
    ) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(_subject(name, groups), key.public_key())
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if dns_names:
            address = x509.IPAddress(ipaddress.ip_address(LOOPBACK))
            names = x509.SubjectAlternativeName([address, *map(x509.DNSName, dns_names)])
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return self._write(name, certificate.public_bytes(serialization.Encoding.PEM), key)

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - BEFORE)
            .not_valid_after(now + self._lifetime)
        )

    def _write(self, name: str, certificate: bytes, key: Key) -> KeyPair:
        pair = KeyPair(self._folder / f"{_file_name(name)}.crt", self._folder / f"{_file_name(name)}.key")
        pair.certificate.write_bytes(certificate)
        pair.key.touch(mode=0o600)
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
            )
        )
        return pair


def _subject(user: str, groups: Sequence[str]) -> x509.Name:
    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, user)])


def _file_name(user: str) -> str:
    return user.replace(":", "-").replace("/", "-")
