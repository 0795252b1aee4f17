"""Tokens for the API server, each by the means that a kubeconfig names: a file, a program, an identity provider.

Each is a function that gives the value of the Authorization header. A token that expires is renewed by the next call.
Calls come from many threads: one of them renews, the others wait for it.
"""

import base64
import json
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
import urllib3
from urllib3.util import Timeout

from hived_extender.kube.configuration import basic

BEFORE_EXPIRY_S = 30.0
"""A token is renewed so long before it expires: a call may be under way for that time."""

PROGRAM_TIMEOUT_S = 60.0
"""For a program that asks nobody."""

PROVIDER_TIMEOUT_S = 10.0
NEVER = float("inf")


def bearer(token: str) -> str:
    """The header of a token. Files of tokens end in a line break."""
    return f"Bearer {token.strip()}"


def token_file(path: Path) -> Callable[[], str]:
    """Reads the file for each call: kubelet replaces it before the token in it expires."""

    def read() -> str:
        token = path.read_text().strip()
        if not token:
            raise ValueError(f"{path} is empty")
        return bearer(token)

    return read


class Renewed:
    """A header that is kept until shortly before it expires. `renew` gives it with the time, in s since 1970."""

    def __init__(self, renew: Callable[[], tuple[str, float]]) -> None:
        self._renew = renew
        self._lock = threading.Lock()
        self._header, self._expires_at = "", 0.0

    def __call__(self) -> str:
        """The header; raises what `renew` raises."""
        with self._lock:
            if time.time() > self._expires_at - BEFORE_EXPIRY_S:
                self._header, self._expires_at = self._renew()
            return self._header


class ExecStatus(msgspec.Struct, rename="camel"):
    """Credentials as a program prints them: a token, a certificate (PEM) with its key, or both."""

    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: str = ""

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
    is_interactive: bool = False

    def run(self) -> ExecStatus:
        """Raises OSError, subprocess.SubprocessError, ValueError or msgspec.ValidationError."""
        name = self.arguments[0]
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
        if done.returncode:
            raise ValueError(f"exec: {name} ended with exit code {done.returncode}: {(done.stderr or '').strip()}")
        answer = msgspec.json.decode(done.stdout, type=_ExecCredential)
        if answer.api_version != self.info["apiVersion"]:
            raise ValueError(f"exec: {name} answered {answer.api_version}, expected {self.info['apiVersion']}")
        status = answer.status
        if not status.token and not (status.client_certificate_data and status.client_key_data):
            raise ValueError(f"exec: {name} gave no token, and no client certificate with its key")
        return status

    def renewed_header(self) -> tuple[str, float]:
        """The header of the token that it prints, and when that expires."""
        status = self.run()
        return (bearer(status.token) if status.token else ""), status.expires_at


class IdentityProvider(msgspec.Struct, rename="kebab"):
    """OpenID Connect, as `auth-provider` of a kubeconfig describes it. Renewed tokens are not written back."""

    id_token: str = ""
    idp_issuer_url: str = ""
    client_id: str = ""
    client_secret: str = ""
    refresh_token: str = ""
    idp_certificate_authority: str = ""
    idp_certificate_authority_data: str = ""

    def renewed_header(self) -> tuple[str, float]:
        """The header of the token that is good now, and when it expires. Raises ValueError or urllib3's HTTPError."""
        if not self.id_token or _expiry(self.id_token) < time.time() + BEFORE_EXPIRY_S:
            self._refresh()
        return bearer(self.id_token), _expiry(self.id_token)

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
