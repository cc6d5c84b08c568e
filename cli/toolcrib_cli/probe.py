"""Asking a running part how it is: one GET of `/healthz` or `/readyz`, by the standard library alone.

A health check runs every few seconds in every container: it loads no more than it needs.
"""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

LIVE, READY = "/healthz", "/readyz"
OWN_PORTS = (8081, 8090, 8092, 8080)
"""Where this container's part listens unless told otherwise: the registry's admin listener, the operator, the runner,
the example tools."""
_MOST = 2000  # bytes of an answer that are read


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of it: `well` for a status of 2xx, and a line that says why."""

    well: bool
    why: str


@dataclass(frozen=True, slots=True)
class Trust:
    """Which certificates are believed: those of a CA file, the system's, or (`insecure`) any."""

    ca_file: Path | None = None
    insecure: bool = False

    def context(self) -> ssl.SSLContext:
        """For one connection.

        Raises:
            OSError: the CA file cannot be read or holds no certificate.
        """
        context = ssl.create_default_context(cafile=str(self.ca_file) if self.ca_file else None)
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def target(address: str, path: str) -> SplitResult:
    """The URL to ask: `path` where the address has none; an address that has one is asked as it is.

    Raises:
        ValueError: it is no http or https URL.
    """
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"not an http or https address: {address}")
    if parts.port == 0:
        raise ValueError(f"not a port: {address}")
    return parts._replace(path=path) if parts.path in ("", "/") and not parts.query else parts


def ask(url: SplitResult, trust: Trust, timeout: float) -> Answer:
    """One GET; redirects are not followed, proxies not used.

    Args:
        timeout: seconds for the connection, and again for each part of the answer.

    Raises:
        OSError: the CA file cannot be used.
    """
    context = trust.context() if url.scheme == "https" else None
    try:
        status, body = _get(url, context, timeout)
    except (OSError, http.client.HTTPException) as error:
        return Answer(False, f"{url.geturl()}: {_reason(error, timeout)}")
    text = f"{url.geturl()} answered {status}"
    first = body.strip().partition("\n")[0]
    return Answer(200 <= status < 300, f"{text}: {first}" if first else text)


def ask_own(path: str, timeout: float, ports: Sequence[int] = OWN_PORTS) -> Answer:
    """Ask the first of these ports on which something of this container listens, by HTTP or else by TLS.

    The certificate is not verified: nothing secret is sent, and it is our own loopback address.
    """
    for port in ports:
        if not _listening(port, timeout):
            continue
        plain = ask(urlsplit(f"http://127.0.0.1:{port}{path}"), Trust(), timeout)
        if plain.well or " answered " in plain.why:
            return plain
        encrypted = ask(urlsplit(f"https://127.0.0.1:{port}{path}"), Trust(insecure=True), timeout)
        return encrypted if " answered " in encrypted.why else plain
    return Answer(False, f"nothing listens on 127.0.0.1 at {', '.join(map(str, ports))}")


def _get(url: SplitResult, context: ssl.SSLContext | None, timeout: float) -> tuple[int, str]:
    assert url.hostname is not None
    connection = (
        http.client.HTTPSConnection(url.hostname, url.port, timeout=timeout, context=context)
        if context
        else http.client.HTTPConnection(url.hostname, url.port, timeout=timeout)
    )
    try:
        whole = f"{url.path or '/'}?{url.query}" if url.query else url.path or "/"
        connection.request("GET", whole, headers={"User-Agent": "toolcrib-health", "Connection": "close"})
        response = connection.getresponse()
        return response.status, response.read1(_MOST).decode("utf-8", "replace")
    finally:
        connection.close()


def _listening(port: int, timeout: float) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=timeout):
            return True
    except OSError:
        return False


def _reason(error: Exception, timeout: float) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, TimeoutError):
        return f"no answer within {timeout:g} s"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there: start the service, or check address and port"
    if isinstance(error, socket.gaierror):
        return "no such host"
    if isinstance(error, http.client.HTTPException | ssl.SSLError):
        return f"it does not speak this protocol ({type(error).__name__})"
    return (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
