"""Credentials for the API server, by the means that a kubeconfig names: a file, a program, an identity provider.

An identity that expires, or that the API server has refused, is renewed by the next call. Calls come from many threads:
one of them renews, the others wait for it.
"""

import atexit
import base64
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
import urllib3
from urllib3.util import Timeout

from hived_extender.kube.configuration import Header, Identity, basic

BEFORE_EXPIRY_S = 30.0
"""A token is renewed so long before it expires: a call may be under way for that time."""

PROGRAM_TIMEOUT_S = 60.0
"""For a program that asks nobody."""

PROVIDER_TIMEOUT_S = 10.0
NEVER = float("inf")


def bearer(token: str) -> str:
    """The header of a token. Files of tokens end in a line break."""
    return f"Bearer {token.strip()}"


def token_file(path: Path) -> Header:
    """The token of a file, which is read for each call: kubelet replaces it before the token in it expires."""

    def read() -> str:
        token = path.read_text().strip()
        if not token:
            raise ValueError(f"{path} is empty")
        return bearer(token)

    return Header(read)


class Renewed:
    """An identity that is kept until shortly before it expires, or is refused.

    `renew` gives a new one with the time when it expires, in s since 1970.
    """

    def __init__(self, renew: Callable[[], tuple[Identity, float]]) -> None:
        self._renew = renew
        self._lock = threading.Lock()
        self._identity, self._expires_at = Identity(), 0.0

    def identity(self) -> Identity:
        """The identity that is good now; raises what `renew` raises."""
        with self._lock:
            if time.time() > self._expires_at - BEFORE_EXPIRY_S:
                self._identity, self._expires_at = self._renew()
            return self._identity

    def forget(self, refused: Identity) -> None:
        """Renew it at its next use. Many calls may be refused at once: only the first of them finds it unchanged."""
        with self._lock:
            if refused is self._identity:
                self._expires_at = 0.0


class ExecStatus(msgspec.Struct, rename="camel"):
    """Credentials as a program prints them: a token, a certificate (PEM) with its key, or both."""

    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: str | None = None

    @property
    def expires_at(self) -> float:
        """In s since 1970. Raises ValueError if it is no time."""
        return datetime.fromisoformat(self.expiration_timestamp).timestamp() if self.expiration_timestamp else NEVER


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str
    status: ExecStatus


class Program(msgspec.Struct, frozen=True):
    """A program that prints an `ExecCredential`; `info` is what it is told in `KUBERNETES_EXEC_INFO`.

    Without `is_interactive` it has no standard input, and must end within `PROGRAM_TIMEOUT_S`.
    """

    arguments: Sequence[str]
    environment: Mapping[str, str]
    folder: Path
    info: Mapping[str, Any]
    install_hint: str = ""
    is_interactive: bool = False

    def run(self) -> ExecStatus:
        """Raises OSError, subprocess.SubprocessError, ValueError or msgspec.ValidationError."""
        name = self.arguments[0]
        try:
            done = subprocess.run(
                self.arguments,
                env={**self.environment, "KUBERNETES_EXEC_INFO": json.dumps(self.info)},
                cwd=self.folder,
                stdin=None if self.is_interactive else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=None if self.is_interactive else subprocess.PIPE,
                timeout=None if self.is_interactive else PROGRAM_TIMEOUT_S,
                text=True,
                check=False,
            )
        except FileNotFoundError as error:
            raise ValueError(f"exec: there is no {name}. {self.install_hint}".strip()) from error
        if done.returncode:
            raise ValueError(f"exec: {name} ended with exit code {done.returncode}: {(done.stderr or '').strip()}")
        answer = msgspec.json.decode(done.stdout, type=_ExecCredential)
        if answer.api_version != self.info["apiVersion"]:
            raise ValueError(f"exec: {name} answered {answer.api_version}, expected {self.info['apiVersion']}")
        status = answer.status
        if not status.token and not (status.client_certificate_data and status.client_key_data):
            raise ValueError(f"exec: {name} gave no token, and no client certificate with its key")
        if bool(status.client_certificate_data) != bool(status.client_key_data):
            raise ValueError(f"exec: {name} gave a client certificate or its key: expected both, or a token alone")
        return status


class Issuer:
    """Makes identities of what a program prints. Not thread-safe."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._kept: list[tuple[tuple[str, str], tuple[str, str]]] = []  # texts of a certificate and its key, and paths

    def renew(self) -> tuple[Identity, float]:
        """Run the program; gives the identity, and when it expires. Raises what `Program.run` raises."""
        status = self._program.run()
        header = bearer(status.token) if status.token else ""
        certificate, key = self._files(status.client_certificate_data or "", status.client_key_data or "")
        return Identity(header, certificate, key), status.expires_at

    def _files(self, certificate: str, key: str) -> tuple[str, str]:
        """Paths of files with these texts; the same as before if they are, so that connections can be kept."""
        if not certificate:
            return "", ""
        if not self._kept or self._kept[-1][0] != (certificate, key):
            self._kept.append(((certificate, key), (kept(certificate), kept(key))))
        if len(self._kept) > 2:  # the last but one may be read by a connection that is just being made
            for path in self._kept.pop(0)[1]:
                Path(path).unlink(missing_ok=True)
        return self._kept[-1][1]


class IdentityProvider(msgspec.Struct, rename="kebab"):
    """OpenID Connect, as `auth-provider` of a kubeconfig describes it. Renewed tokens are not written back."""

    id_token: str = ""
    idp_issuer_url: str = ""
    client_id: str = ""
    client_secret: str = ""
    refresh_token: str = ""
    idp_certificate_authority: str = ""
    idp_certificate_authority_data: str = ""

    def renew(self) -> tuple[Identity, float]:
        """The identity that is good now, and when it expires. Raises ValueError or urllib3's HTTPError."""
        if not self.id_token or _expiry(self.id_token) < time.time() + BEFORE_EXPIRY_S:
            self._refresh()
        return Identity(bearer(self.id_token)), _expiry(self.id_token)

    def _refresh(self) -> None:
        if not self.refresh_token or not self.idp_issuer_url:
            raise ValueError("auth-provider oidc: the token has expired, and there is no refresh-token to renew it")
        data = base64.b64decode(self.idp_certificate_authority_data).decode()
        timeout = Timeout(PROVIDER_TIMEOUT_S)
        pool = urllib3.PoolManager(
            ca_certs=self.idp_certificate_authority or None, ca_cert_data=data or None, timeout=timeout, retries=False
        )
        described = _answer(pool.request("GET", f"{self.idp_issuer_url.rstrip('/')}/.well-known/openid-configuration"))
        form = {"grant_type": "refresh_token", "refresh_token": self.refresh_token, "client_id": self.client_id}
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        if self.client_secret:
            headers["Authorization"] = basic(self.client_id, self.client_secret)
        endpoint = str(described.get("token_endpoint", ""))
        renewed = _answer(pool.request("POST", endpoint, body=urlencode(form), headers=headers))
        if not isinstance(renewed.get("id_token"), str):
            raise ValueError("auth-provider oidc: the identity provider gave no id_token")
        self.id_token = renewed["id_token"]
        self.refresh_token = renewed.get("refresh_token") or self.refresh_token


def _answer(response: urllib3.BaseHTTPResponse) -> dict[str, Any]:
    if response.status != 200:
        raise ValueError(f"auth-provider oidc: the identity provider answered {response.status}")
    return msgspec.json.decode(response.data, type=dict[str, Any])


def _expiry(token: str) -> float:
    """When a JSON web token expires, in s since 1970; a token without a time never does."""
    try:
        claims = token.split(".")[1]
        expiry = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"]
    except (IndexError, KeyError, TypeError, ValueError):
        return NEVER
    return float(expiry)


def kept(text: str) -> str:
    """The path of a file with this text, for this process: TLS reads certificates from files only."""
    descriptor, path = tempfile.mkstemp(dir=_folder())
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    return path


@cache
def _folder() -> str:
    folder = tempfile.mkdtemp(prefix="hived-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
