"""A replica's admin channel by HTTP. The bearer token is read from its file at each use: it rotates."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import orjson
from pydantic import BaseModel, ValidationError

from toolcrib.errors import EpochFenced, RevisionMismatch
from toolcrib.telemetry import logs, tracing
from toolcrib.wire.confirmations import CallsReport, CallsTold
from toolcrib.wire.imports import ListRequest, ServerList, ServersReport, ServersRequest
from toolcrib.wire.index import IndexAnswer, IndexInventory, IndexRequest
from toolcrib.wire.outbox import Outbox, OutboxAcks
from toolcrib.wire.probes import BackendReport, ProbeRequest
from toolcrib.wire.publish import (
    Credentials,
    Heartbeat,
    Publish,
    ReplicaState,
    SnapshotCommit,
)
from toolcrib_operator.adapters.trust import Trust
from toolcrib_operator.errors import IndexUnavailable, ReplicaUnavailable

_Answer = TypeVar("_Answer", bound=BaseModel)
MAX_ANSWER = 64 * 1024 * 1024
_DETAIL = 300
_ANSWERS = 4.0
"""Seconds beyond those that a replica waits for a change: one that is silent for longer is replaced by another."""
_DEAD_SECONDS = 5
"""What has been sent must be acknowledged by then. A network that drops packets says nothing, and TCP alone tries for
a quarter of an hour, less and less often: after a partition, too."""


class NotHeld(ReplicaUnavailable):
    """The replica does not hold the list that it was asked for."""


def connector() -> aiohttp.TCPConnector:
    """Connections to replicas, which end soon where packets are dropped."""
    return aiohttp.TCPConnector(socket_factory=_socket)


def _socket(info: Any) -> socket.socket:
    family, kind, protocol, _, _ = info
    made = socket.socket(family, kind, protocol)
    if option := getattr(socket, "TCP_USER_TIMEOUT", None):
        made.setsockopt(socket.IPPROTO_TCP, option, _DEAD_SECONDS * 1000)
    return made


class HttpReplica:
    """One replica, at its admin URL."""

    def __init__(
        self,
        url: str,
        session: aiohttp.ClientSession,
        *,
        token_file: Path | None = None,
        trust: Trust | None = None,
        timeout: float = 10.0,
        index_timeout: float = 120.0,
    ) -> None:
        """Timeouts are in seconds; embedding a batch may take much longer than a publish."""
        self.name = url
        self._session, self._token_file = session, token_file
        self._trust = (trust or Trust()) if url.startswith("https:") else None
        self._timeout, self._index_timeout = timeout, index_timeout

    async def report(self) -> ReplicaState:
        """What it holds, and which features it enforces."""
        return await self._send("GET", "state", None, ReplicaState, self._timeout)

    async def publish(self, publish: Publish) -> ReplicaState:
        """Apply one step."""
        # encoding thousands of tools takes a while: not in the event loop
        body = await asyncio.to_thread(publish.model_dump_json, by_alias=True)
        return await self._post("publish", body.encode(), ReplicaState, max(self._timeout, 60.0))

    async def stage(self, chunk: bytes) -> ReplicaState:
        """Hand over a chunk of a full snapshot."""
        return await self._post("snapshot/chunks", chunk, ReplicaState)

    async def commit(self, commit: SnapshotCommit) -> ReplicaState:
        """Put what is staged into effect."""
        body = commit.model_dump_json().encode()
        return await self._post("snapshot/commit", body, ReplicaState, max(self._timeout, 60.0))

    async def heartbeat(self, heartbeat: Heartbeat) -> ReplicaState:
        """Say that the leader is alive."""
        return await self._post("heartbeat", heartbeat.model_dump_json().encode(), ReplicaState)

    async def credentials(self, credentials: Credentials) -> ReplicaState:
        """Replace all backend credentials."""
        return await self._post("credentials", credentials.model_dump_json().encode(), ReplicaState)

    async def index(self, request: IndexRequest) -> IndexAnswer:
        """Write to the search index and read back."""
        return await self._post("index", request.model_dump_json().encode(), IndexAnswer, self._index_timeout)

    async def inventory(self) -> IndexInventory:
        """What the search index holds."""
        return await self._send("GET", "index", None, IndexInventory, self._index_timeout)

    async def calls(self, told: CallsTold) -> CallsReport:
        """Tell it what was decided about single calls; which wait there, and which were made."""
        return await self._post("calls", told.model_dump_json().encode(), CallsReport)

    async def backends(self, request: ProbeRequest) -> BackendReport:
        """Have it probe backends for some time; what it knows so far."""
        return await self._post("backends", request.model_dump_json().encode(), BackendReport)

    async def servers(self, request: ServersRequest) -> ServersReport:
        """Have it watch exactly these servers for some time; waits for a change."""
        body = request.model_dump_json().encode()
        return await self._post("servers", body, ServersReport, request.wait + _ANSWERS)

    async def server_list(self, request: ListRequest) -> ServerList | None:
        """One list that a report named; None: it is not held any more."""
        try:
            return await self._post(
                "servers/list", request.model_dump_json().encode(), ServerList, max(self._timeout, 30.0)
            )
        except NotHeld:
            return None

    async def outbox(self, epoch: int, wait: float) -> Outbox:
        """Runtime registrations that wait to be created; waits for one."""
        route = f"outbox?epoch={epoch}&wait={wait}"
        return await self._send("GET", route, None, Outbox, wait + self._timeout)

    async def acknowledge(self, acks: OutboxAcks) -> ReplicaState:
        """Say what became of them."""
        return await self._post("outbox", acks.model_dump_json().encode(), ReplicaState)

    async def _post(
        self, route: str, body: bytes, answer: type[_Answer], seconds: float | None = None
    ) -> _Answer:
        return await self._send("POST", route, body, answer, seconds or self._timeout)

    async def _send(
        self, method: str, route: str, body: bytes | None, answer: type[_Answer], seconds: float
    ) -> _Answer:
        limits = aiohttp.ClientTimeout(total=seconds, sock_connect=3.0)
        plain = f"/v1/admin/{route.partition('?')[0]}"
        about = {"http.request.method": method, "url.template": plain, "toolcrib.replica": self.name}
        with tracing.span(f"{method} {plain}", about, kind="client") as span:
            status, data, retry_after = await self._exchange(method, route, body, limits)
            span.set({"http.response.status_code": status})
        if status == 200:
            try:
                return await asyncio.to_thread(answer.model_validate_json, data)
            except ValidationError as error:
                raise ReplicaUnavailable(f"{route}: unexpected response") from error
        raise _failure(route, status, data, retry_after)

    async def _exchange(
        self, method: str, route: str, body: bytes | None, limits: aiohttp.ClientTimeout
    ) -> tuple[int, bytes, str | None]:
        trust = self._trust
        tls = trust.context() if trust is not None else None
        try:
            headers = self._headers()
            async with self._session.request(
                method, f"{self.name}/v1/admin/{route}", data=body, headers=headers, timeout=limits,
                allow_redirects=False, ssl=tls if tls is not None else True,
                server_hostname=None if trust is None else trust.server_name,
            ) as response:  # fmt: skip
                data = await response.content.read(MAX_ANSWER)
                while not response.content.at_eof():
                    data += await response.content.read(MAX_ANSWER)
                    if len(data) > MAX_ANSWER:
                        raise ReplicaUnavailable(f"{route}: the answer is too large")
                return response.status, data, response.headers.get("Retry-After")
        except aiohttp.ClientConnectorCertificateError as error:
            cause = error.certificate_error
            if trust is None or not isinstance(cause, ssl.SSLCertVerificationError):
                raise ReplicaUnavailable(f"{route}: the certificate is not trusted") from error
            raise ReplicaUnavailable(f"{route}: {trust.explained(cause)}"[: 2 * _DETAIL]) from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ReplicaUnavailable(f"{route}: {type(error).__name__}: {error}"[:_DETAIL]) from error

    def _headers(self) -> dict[str, str]:
        request_id = logs.request_id.get() or logs.new_request_id("op-")
        headers = {"Content-Type": "application/json", "X-Request-Id": request_id, **tracing.headers()}
        if self._token_file is not None:
            headers["Authorization"] = f"Bearer {_token(self._token_file)}"
        return headers


def _token(file: Path) -> str:
    """The token in `file`.

    Raises:
        OSError: it cannot be read.
        ReplicaUnavailable: what is in there can be no token; the message holds nothing of it.
    """
    token = file.read_bytes().strip()
    if not token or not all(0x21 <= byte <= 0x7E for byte in token):
        raise ReplicaUnavailable(f"the token file {file} holds no token")
    return token.decode("ascii")


def _failure(route: str, status: int, data: bytes, retry_after: str | None) -> Exception:
    try:
        problem: Any = orjson.loads(data)
    except ValueError:
        problem = None
    if not isinstance(problem, dict):
        return ReplicaUnavailable(f"{route}: HTTP {status}")
    code = problem.get("code")
    detail = str(problem.get("detail") or problem.get("title") or "")[:_DETAIL]
    if code == "not_listed":
        return NotHeld(detail)
    if code == "revision_mismatch":
        return RevisionMismatch(detail)
    if code == "epoch_fenced":
        return EpochFenced(detail)
    if code == "index_unavailable":
        seconds = float(retry_after) if retry_after is not None and retry_after.isdecimal() else None
        return IndexUnavailable(detail, seconds)
    return ReplicaUnavailable(f"{route}: HTTP {status}: {detail}")
