"""TLS on the extender's port, with certificates that may be renewed on disk.

Files are looked at whenever a connection begins, which costs microseconds: no thread has to watch them, and the first
connection after a renewal gets the new certificate. They are read into a context of their own that replaces the old one
as a whole. So a pair that is half-written, mismatched or gone leaves the old one in force.
"""

import logging
import ssl
from pathlib import Path

from hived.values.errors import UserError

log = logging.getLogger(__name__)

Stamp = tuple[int, int, int]


class ServerTls:
    """The server's certificate and key, and the CA whose client certificates count. For the event loop's thread."""

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None = None, *, options: str = "--tls") -> None:
        """Without `client_ca` clients are not asked for a certificate. Raises UserError, which names the command line's
        options that begin with `options`, if a file cannot be used.
        """
        self._certificate_option, self._key_option = f"{options}-cert-file", f"{options}-private-key-file"
        self._certificate = certificate
        self._key = key
        self._client_ca = client_ca
        self._stamps = self._read_stamps()
        self._current = self._load()
        self.context = self._blank_context()
        """For the listening socket: it has no certificate itself, each connection is given the current one."""
        self.context.sni_callback = self._choose

    @property
    def certificate(self) -> Path:
        """The file of the certificate."""
        return self._certificate

    @property
    def verifies_clients(self) -> bool:
        """True if client certificates are asked for."""
        return self._client_ca is not None

    def _choose(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        """Called by OpenSSL at the start of every handshake, whether or not the client named a server."""
        stamps = self._read_stamps()
        if stamps != self._stamps:
            self._stamps = stamps
            try:
                self._current = self._load()
                log.info("certificates renewed", extra={"fields": {"file": str(self._certificate)}})
            except UserError as error:
                log.error("certificates not renewed, the old ones stay", extra={"fields": {"error": error.message}})
        connection.context = self._current

    def _blank_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # A resumed session would bring back a client's certificate as it was judged then, by the CA of then. TLS 1.3
        # has tickets for that, which can be turned off; the sessions of TLS 1.2 cannot be from here.
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.num_tickets = 0
        if self._client_ca is not None:
            # Optional, since probes and holders of tokens have none; the gate decides about their calls.
            context.verify_mode = ssl.CERT_OPTIONAL
            # As Go does: an intermediate authority in the file is one to trust.
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        return context

    def _load(self) -> ssl.SSLContext:
        context = self._blank_context()
        _require_readable(self._certificate_option, self._certificate)
        _require_readable(self._key_option, self._key)
        try:
            # Without a function OpenSSL would ask for the passphrase on the terminal.
            context.load_cert_chain(self._certificate, self._key, password=lambda: "")
        except (OSError, ValueError) as error:
            raise UserError(
                f"{self._certificate_option} {self._certificate} and {self._key_option} {self._key}: expected a PEM "
                f"certificate and its PEM key without a passphrase, found {_found(error)}"
            ) from error
        if self._client_ca is not None:
            _require_readable("--client-ca-file", self._client_ca)
            try:
                context.load_verify_locations(self._client_ca)
            except (OSError, ValueError) as error:
                raise UserError(
                    f"--client-ca-file {self._client_ca}: expected PEM certificates, found {_found(error)}"
                ) from error
        return context

    def _read_stamps(self) -> tuple[Stamp | None, ...]:
        files = (self._certificate, self._key, self._client_ca)
        return tuple(None if file is None else _stamp(file) for file in files)


def _require_readable(option: str, file: Path) -> None:
    try:
        with file.open("rb"):
            pass
    except OSError as error:
        raise UserError(f"{option} {file}: expected a file that can be read, found: {error.strerror}") from error


def _stamp(file: Path) -> Stamp | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


_FOUND = {"KEY_VALUES_MISMATCH": "a key that belongs to another certificate", "NO_START_LINE": "no PEM in it"}


def _found(error: Exception) -> str:
    reason = (error.reason if isinstance(error, ssl.SSLError) else None) or str(error)
    return _FOUND.get(reason, reason)
