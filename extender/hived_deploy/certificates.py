"""Certificates for the extender and for kube-scheduler: a small authority of their own, and one certificate for each.

The only file that imports `cryptography`. Keys are ECDSA P-256, which every TLS client takes and which signs a
handshake in a fraction of RSA's time. Nothing is written here.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from hived.values.errors import UserError

CA_NAME = "hived-ca"
CA_DAYS = 3650
CLOCK_SKEW = timedelta(minutes=5)
"""Certificates begin a little in the past: clocks of nodes differ."""


class KeyPair(msgspec.Struct, frozen=True):
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes


def service_hosts(service: str, namespace: str) -> list[str]:
    """The names and addresses under which a Service, or a process on this machine, is reached."""
    name = f"{service}.{namespace}.svc"
    return [service, f"{service}.{namespace}", name, f"{name}.cluster.local", "localhost", "127.0.0.1", "::1"]


def expiry(certificate: bytes) -> datetime:
    """Return when the first certificate of a PEM text ends. Raises ValueError if it is none."""
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


class Authority:
    """A CA that signs server and client certificates."""

    def __init__(self, pair: KeyPair) -> None:
        """A CA from its files. Raises UserError if they are no CA or no pair."""
        self.pair = pair
        try:
            self._certificate = x509.load_pem_x509_certificate(pair.certificate)
            key = serialization.load_pem_private_key(pair.key, None)
            if not isinstance(key, ec.EllipticCurvePrivateKey):
                raise ValueError("the key is none for ECDSA")
            if key.public_key() != self._certificate.public_key():
                raise ValueError("the key belongs to another certificate")
            self._certificate.verify_directly_issued_by(self._certificate)
        except (ValueError, TypeError, InvalidSignature) as error:
            raise UserError(
                f"expected the certificate and the key of a CA, found: {error or 'another signer'}"
            ) from error
        if self.expires_at <= datetime.now(UTC):
            raise UserError(f"the CA has expired on {self.expires_at:%Y-%m-%d}")
        self._key = key

    @classmethod
    def create(cls, days: int = CA_DAYS) -> "Authority":
        """A new CA."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name(CA_NAME)
        builder = _builder(name, key.public_key(), name, _end(days))
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
        return cls(KeyPair(_pem(builder.sign(key, hashes.SHA256())), _key_pem(key)))

    @property
    def expires_at(self) -> datetime:
        """The moment at which everything that it has signed ends at the latest."""
        return self._certificate.not_valid_after_utc

    def end(self, days: int) -> datetime:
        """Return when a certificate for so many days from now ends."""
        return min(_end(days), self.expires_at)

    def server(self, hosts: Sequence[str], days: int) -> KeyPair:
        """A certificate for a server that is reached by these names and addresses; the first is its common name."""
        names = x509.SubjectAlternativeName([_host(host) for host in hosts])
        return self._sign(_name(hosts[0]), days, ExtendedKeyUsageOID.SERVER_AUTH, names)

    def client(self, name: str, days: int, groups: Sequence[str] = ()) -> KeyPair:
        """A certificate for a client, who is a user of this name and these groups to Kubernetes and to us."""
        return self._sign(_name(name, groups), days, ExtendedKeyUsageOID.CLIENT_AUTH)

    def _sign(
        self, subject: x509.Name, days: int, purpose: x509.ObjectIdentifier, *extensions: x509.ExtensionType
    ) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(subject, key.public_key(), self._certificate.subject, self.end(days))
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
        for extension in (x509.ExtendedKeyUsage([purpose]), self._authority_key(), *extensions):
            builder = builder.add_extension(extension, critical=False)
        return KeyPair(_pem(builder.sign(self._key, hashes.SHA256())), _key_pem(key))

    def _authority_key(self) -> x509.AuthorityKeyIdentifier:
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())


def _builder(
    subject: x509.Name, key: ec.EllipticCurvePublicKey, issuer: x509.Name, end: datetime
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, end) - CLOCK_SKEW)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _end(days: int) -> datetime:
    return datetime.now(UTC) + timedelta(days=days)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str, organizations: Sequence[str] = ()) -> x509.Name:
    groups = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in organizations]
    return x509.Name([*groups, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def ssh_key_pair() -> tuple[bytes, bytes]:
    """A new key for ssh, private and public, as OpenSSH writes them: a job's pods let each other in with it."""
    key = ec.generate_private_key(ec.SECP256R1())
    encoding, public = serialization.Encoding, serialization.PublicFormat
    private = key.private_bytes(encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
    return private, key.public_key().public_bytes(encoding.OpenSSH, public.OpenSSH) + b"\n"
