"""The registry over HTTP: discovery, calls and the live stream, with the agent's bearer token.

**Where the token goes.** Calls go to the discovery URL plus the tool's endpoint, not to the `host:port` of the
listing: the address an agent was given works for that agent (behind an ingress, a port-forward, a sidecar), the
listed one need not; and an answer of the network must not choose to whom a bearer token is sent. Where the listed
address is wanted, name it in `call_hosts`. Redirects are not followed and proxy variables are ignored, for the
same reason.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import httpx_sse

from toolcrib.telemetry import logs, tracing
from toolcrib.version import __version__
from toolcrib_runner import answers, discovery, tokens
from toolcrib_runner.discovery import Discovered, DiscoveredTool
from toolcrib_runner.errors import RegistryAnswerInvalid, RegistryUnavailable
from toolcrib_runner.tokens import TokenSource

MAX_DISCOVERY = 64 * 1024 * 1024
MAX_RESULT = 16 * 1024 * 1024
MAX_PROBLEM = 256 * 1024
LOAD_BATCH = 100
"""Tools in one request for definitions, the registry's bound."""
RECONNECT_PAUSES = (0.0, 0.3)
"""Seconds before a request that reached nobody is sent again: behind a Service the next connection may lead to a replica
that is there."""
WATCH_SILENCE = 60.0
"""Seconds without even a comment after which a live stream counts as dead."""


class RegistryHttp:
    """A `Registry` at `discovery_url`: the URL whose `GET` lists the tools.

    `timeout` bounds discovery, `call_timeout` a tool call (the longest backend deadline is 5 minutes), both in
    seconds between two arrivals of data. `ca_file` replaces the system's certificate authorities.
    """

    def __init__(
        self,
        discovery_url: str,
        token: TokenSource | None,
        *,
        call_hosts: Collection[str] = (),
        ca_file: str | None = None,
        timeout: float = 10.0,
        call_timeout: float = 310.0,
    ) -> None:
        try:
            url = httpx.URL(discovery_url)
            url.raw_host.decode("ascii").encode("idna")  # as the resolver does
            host = url.host
        except (httpx.InvalidURL, UnicodeError) as error:
            raise ValueError(f"the discovery URL cannot be read: {error}") from error
        if url.scheme not in ("http", "https") or not host or url.query or url.fragment or url.userinfo:
            raise ValueError(
                "the discovery URL must be http(s)://host[:port][/path], without query or credentials"
            )
        self._base = str(url).rstrip("/")
        self._scheme, self._host = url.scheme, host
        self._token = token
        self._call_hosts = frozenset(call_hosts)
        self._call_timeout = httpx.Timeout(call_timeout, connect=min(timeout, 5.0))
        self._client = httpx.Client(
            timeout=httpx.Timeout(timeout, connect=min(timeout, 5.0)),
            verify=ssl.create_default_context(cafile=ca_file) if url.scheme == "https" else False,
            trust_env=False,
            headers={"user-agent": f"toolcrib-runner/{__version__}"},
        )
        self._lock = threading.Lock()
        self._stream: httpx.Response | None = None
        self._interrupted = False

    def discover(self, etag: str | None = None) -> Discovered | None:
        """`GET` the list, with If-None-Match where an ETag is known."""
        headers = {"accept": "application/json"} | ({"if-none-match": etag} if etag else {})
        response, body = self._send("GET", self._base + "/", MAX_DISCOVERY, headers=headers)
        if response.status_code == 304:
            return None
        if response.status_code != 200:
            raise answers.of_registry(response.status_code, body, response.headers.get("retry-after"))
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            raise RegistryAnswerInvalid(
                "the discovery response is not JSON: check that the URL is a registry's address"
            ) from None
        found = discovery.read(document, response.headers.get("etag"))
        if self._token is not None and not found.authenticated:
            # This route answers a refused token with an empty list, not with 401.
            tokens.renew(self._token)
        return found

    def call(self, tool: DiscoveredTool, arguments: Mapping[str, Any]) -> Any:
        """`POST` the arguments to the tool's call route."""
        content = json.dumps(arguments, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        headers = {"content-type": "application/json", "accept": "application/json, text/plain, */*"}
        response, body = self._send(
            "POST",
            self.call_url(tool),
            MAX_RESULT,
            headers=headers,
            content=content,
            timeout=self._call_timeout,
        )
        if not response.is_success:
            raise answers.of_call(tool.name, response.status_code, body, response.headers.get("retry-after"))
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if not body:
            return None
        if kind == "application/json" or kind.endswith("+json"):
            try:
                return json.loads(body)
            except (ValueError, RecursionError):
                raise RegistryAnswerInvalid(
                    f"{tool.name}: the response claims to be JSON but is not"
                ) from None
        return body.decode("utf-8", errors="replace")

    def input_schemas(self, names: Sequence[str]) -> Mapping[str, dict[str, Any]]:
        """`POST /v1/load`, in batches."""
        found: dict[str, dict[str, Any]] = {}
        headers = {"content-type": "application/json", "accept": "application/json"}
        for first in range(0, len(names), LOAD_BATCH):
            content = json.dumps({"tools": list(names[first : first + LOAD_BATCH])}).encode()
            response, body = self._send(
                "POST", self._base + "/v1/load", MAX_DISCOVERY, headers=headers, content=content
            )
            if response.status_code != 200:
                raise answers.of_registry(response.status_code, body, response.headers.get("retry-after"))
            try:
                found.update(discovery.read_schemas(json.loads(body)))
            except (ValueError, RecursionError):
                raise RegistryAnswerInvalid("the definitions are not JSON") from None
        return found

    def search(self, query: str, limit: int) -> Sequence[str]:
        """`POST /v1/search`."""
        content = json.dumps({"query": query, "limit": limit}).encode()
        headers = {"content-type": "application/json", "accept": "application/json"}
        response, body = self._send(
            "POST", self._base + "/v1/search", MAX_RESULT, headers=headers, content=content
        )
        if response.status_code != 200:
            raise answers.of_registry(response.status_code, body, response.headers.get("retry-after"))
        try:
            return discovery.read_hits(json.loads(body))
        except (ValueError, RecursionError):
            raise RegistryAnswerInvalid("the search answer is not JSON") from None

    def call_url(self, tool: DiscoveredTool) -> str:
        """Where calls of the tool go; see the module's text."""
        host = f"[{tool.host}]" if ":" in tool.host and not tool.host.startswith("[") else tool.host
        if f"{host}:{tool.port}" in self._call_hosts:
            return f"{self._scheme}://{host}:{tool.port}{tool.endpoint}"
        return self._base + tool.endpoint

    @contextmanager
    def watch(self) -> Iterator[Iterator[str]]:
        """Open `/v1/watch` and yield its event names."""
        try:
            with httpx_sse.connect_sse(
                self._client,
                "GET",
                self._base + "/v1/watch",
                headers={**self._authorization(), **_carried("watch-")},
            ) as source:
                response = source.response
                if response.status_code != 200:
                    body = _bounded(response, MAX_PROBLEM)
                    if response.status_code == 401 and self._token is not None:
                        tokens.renew(self._token)
                    raise answers.of_registry(response.status_code, body, response.headers.get("retry-after"))
                # The headers had to come as fast as any answer; what follows may be silent for longer. httpx has
                # one read timeout for both, which the transport looks up anew for the body.
                response.request.extensions["timeout"]["read"] = WATCH_SILENCE
                self._hold(response)
                yield (event.event or "message" for event in source.iter_sse())
        except httpx_sse.SSEError:
            raise RegistryAnswerInvalid("the live stream is not an event stream") from None
        except httpx.HTTPError as error:
            raise _unreachable(error) from error
        finally:
            with self._lock:
                self._stream = None

    def interrupt(self) -> None:
        """Shut the live stream's socket, which wakes the thread that reads it; later streams end at once."""
        with self._lock:
            self._interrupted = True
            if self._stream is not None:
                _shut(self._stream)

    def close(self) -> None:
        """Close the live stream and every pooled connection."""
        self.interrupt()
        self._client.close()

    def _hold(self, response: httpx.Response) -> None:
        with self._lock:
            self._stream = response
            if self._interrupted:
                _shut(response)

    def _authorization(self) -> dict[str, str]:
        return {} if self._token is None else {"authorization": f"Bearer {tokens.checked(self._token())}"}

    def _send(
        self, method: str, url: str, limit: int, *, headers: Mapping[str, str], **request: Any
    ) -> tuple[httpx.Response, bytes]:
        """One exchange; asked once more with a new token where the first was refused and the source has one."""
        used = self._authorization()
        response, body = self._exchange(method, url, limit, headers={**headers, **used}, **request)
        if response.status_code == 401 and self._token is not None:
            tokens.renew(self._token)
            fresh = self._authorization()
            if fresh != used:
                return self._exchange(method, url, limit, headers={**headers, **fresh}, **request)
        return response, body

    def _exchange(
        self, method: str, url: str, limit: int, *, headers: Mapping[str, str], **request: Any
    ) -> tuple[httpx.Response, bytes]:
        """One exchange; done again where that can do no harm, since another replica may answer."""
        about = {"http.request.method": method, "server.address": self._host}
        sent = {**headers, **_carried("run-")}
        for pause in (*RECONNECT_PAUSES, None):
            try:
                with (
                    tracing.span(method, about, kind="client") as span,
                    self._client.stream(
                        method, url, headers={**sent, **tracing.headers()}, **request
                    ) as response,
                ):
                    span.set({"http.response.status_code": response.status_code})
                    return response, _bounded(response, limit if response.is_success else MAX_PROBLEM)
            except httpx.HTTPError as error:
                if pause is None or not _repeatable(method, error):
                    raise _unreachable(error) from error
            time.sleep(pause)
        raise AssertionError("the last attempt returns or raises")


def _repeatable(method: str, error: httpx.HTTPError) -> bool:
    """Whether a request may be sent again: it reached nobody, or it only reads and its connection broke."""
    if isinstance(error, httpx.ConnectError):
        return True
    return method == "GET" and isinstance(error, httpx.RemoteProtocolError | httpx.NetworkError)


def _carried(prefix: str) -> dict[str, str]:
    """What ties the request to the work that it is for, in the logs and traces of both sides."""
    return {"x-request-id": logs.request_id.get() or logs.new_request_id(prefix), **tracing.headers()}


def _bounded(response: httpx.Response, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    for part in response.iter_bytes():
        size += len(part)
        if size > limit:
            raise RegistryAnswerInvalid(
                f"the response is larger than {limit} bytes", status=response.status_code
            )
        parts.append(part)
    return b"".join(parts)


def _unreachable(error: httpx.HTTPError) -> RegistryUnavailable:
    if isinstance(error, httpx.TimeoutException):
        return RegistryUnavailable("the registry did not respond in time")
    return RegistryUnavailable(f"the registry cannot be reached: {str(error) or type(error).__name__}")


def _shut(response: httpx.Response) -> None:
    # Closing a socket does not wake a thread that reads from it; shutting it down does.
    stream = response.extensions.get("network_stream")
    connection = stream.get_extra_info("socket") if stream is not None else None
    if isinstance(connection, socket.socket):
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
