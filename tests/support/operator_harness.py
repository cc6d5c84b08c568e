"""What the operator's tests need: an honest replica, in process or over HTTP."""

import asyncio
import hashlib
import threading
import time
from typing import Any, Self

from aiohttp import web

from realparts import processes
from toolcrib.errors import EpochFenced, RevisionMismatch
from toolcrib.snapshot import Snapshot
from toolcrib.wire.canaries import CanaryCounts
from toolcrib.wire.confirmations import CallsReport, CallsTold
from toolcrib.wire.features import FEATURES
from toolcrib.wire.imports import (
    ListRequest,
    ServerList,
    ServerOutcome,
    ServerSeen,
    ServersReport,
    ServersRequest,
)
from toolcrib.wire.index import IndexAnswer, IndexInventory, IndexRequest
from toolcrib.wire.outbox import (
    AccessEntry,
    Outbox,
    OutboxAck,
    OutboxAcks,
    OutboxEntry,
)
from toolcrib.wire.probes import BackendProbe, BackendReport, ProbeRequest
from toolcrib.wire.publish import (
    AuditHead,
    Credentials,
    Heartbeat,
    Publish,
    ReplicaState,
    SnapshotChunk,
    SnapshotCommit,
)
from toolcrib_operator.errors import IndexUnavailable, ReplicaUnavailable


class MemoryReplica:
    """A replica of the registry as the admin channel describes it: `Snapshot.apply` and a dictionary as index."""

    def __init__(self, name: str = "replica-0") -> None:
        self.name = name
        self.down = False
        self.index_down = False
        self.index_delay = 0.0
        self.entries: dict[str, str] = {}
        self.publishes: list[Publish] = []
        self.heartbeats: list[Heartbeat] = []
        self.index_requests: list[IndexRequest] = []
        self.wanted: list[OutboxEntry] = []
        self.asked: list[AccessEntry] = []
        self.acks: list[OutboxAck] = []
        self.backend_probes: dict[str, BackendProbe] = {}
        self.left_out = 0
        self.probe_requests: list[ProbeRequest] = []
        self.server_lists: dict[str, ServerList] = {}
        self.server_troubles: dict[str, ServerSeen] = {}
        self.server_requests: list[ServersRequest] = []
        self.server_counter = 0
        self.list_requests: list[ListRequest] = []
        self.audit: AuditHead | None = None
        self.canaries: tuple[CanaryCounts, ...] = ()
        self.features: tuple[str, ...] = FEATURES
        self.stopping = False
        self.asking = 0
        self.restart()

    def restart(self) -> None:
        """Forget everything a process forgets; the index is kept."""
        self.snapshot = Snapshot()
        self.staged: list[SnapshotChunk] = []
        self.pushed: Credentials | None = None

    @property
    def hash(self) -> str:
        return self.snapshot.hash

    @property
    def state(self) -> ReplicaState:
        revision = self.snapshot.revision
        return ReplicaState(
            replica=self.name,
            revision=revision,
            hash=self.hash,
            ready=revision is not None,
            audit=self.audit,
            features=self.features,
            canaries=self.canaries,
        )

    def _up(self) -> None:
        if self.down:
            raise ReplicaUnavailable(f"{self.name} is down")

    async def report(self) -> ReplicaState:
        self._up()
        return self.state

    async def publish(self, publish: Publish) -> ReplicaState:
        self._up()
        # over the wire and back: what arrives is what JSON carries
        publish = Publish.model_validate_json(publish.model_dump_json(by_alias=True))
        self.snapshot = self.snapshot.apply(publish)
        self.publishes.append(publish)
        return self.state

    async def stage(self, chunk: bytes) -> ReplicaState:
        self._up()
        read = SnapshotChunk.model_validate_json(chunk)
        if read.number == 0:
            self.staged, self.digest = [], hashlib.sha256()
        if read.number != len(self.staged) or any(
            (s.stage, s.to) != (read.stage, read.to) for s in self.staged
        ):
            raise RevisionMismatch("another stage")
        self.staged.append(read)
        self.digest.update(chunk)
        return self.state

    async def commit(self, commit: SnapshotCommit) -> ReplicaState:
        self._up()
        staged, self.staged = self.staged, []
        if (commit.chunks, commit.digest) != (len(staged), self.digest.hexdigest()):
            raise RevisionMismatch("other chunks")
        accounts = [a for s in staged for a in s.accounts or ()]
        whole = Publish(
            to=commit.to,
            age=commit.age,
            bindings=tuple(b for s in staged for b in s.bindings),
            tools=tuple(t for s in staged for t in s.tools),
            servers=tuple(each for s in staged for each in s.servers),
            accounts=None if all(s.accounts is None for s in staged) else tuple(accounts),
        )
        return await self.publish(whole)

    async def heartbeat(self, heartbeat: Heartbeat) -> ReplicaState:
        self._up()
        revision = self.snapshot.revision
        if revision is not None and heartbeat.revision.epoch < revision.epoch:
            raise EpochFenced(f"{revision.epoch} leads")
        if heartbeat.revision != revision or heartbeat.hash != self.hash:
            raise RevisionMismatch(f"{revision} is here")
        self.heartbeats.append(heartbeat)
        return self.state

    async def credentials(self, credentials: Credentials) -> ReplicaState:
        self._up()
        self.pushed = credentials
        return self.state

    async def index(self, request: IndexRequest) -> IndexAnswer:
        self._up()
        await asyncio.sleep(self.index_delay)
        if self.index_down:
            raise IndexUnavailable("the store is away")
        self.index_requests.append(request)
        for tool_id in request.remove:
            self.entries.pop(tool_id, None)
        for tool_id in request.upsert:
            if (tool := self.snapshot.indexed.get(tool_id)) is not None:
                self.entries[tool_id] = tool.digest
        return IndexAnswer(indexed={i: self.entries[i] for i in request.upsert if i in self.entries})

    async def inventory(self) -> IndexInventory:
        self._up()
        if self.index_down:
            raise IndexUnavailable("the store is away")
        return IndexInventory(identity="memory", tools=dict(self.entries))

    async def backends(self, request: ProbeRequest) -> BackendReport:
        self._up()
        self.probe_requests.append(request)
        rows = tuple(self.backend_probes.values())
        return BackendReport(probing=True, looked=True, backends=rows, left_out=self.left_out)

    def serve(self, listed: ServerList | ServerSeen) -> None:
        """What a server has from now on, or that nothing more is known of it than this trouble."""
        if isinstance(listed, ServerList):
            self.server_lists[listed.server] = listed
            self.server_troubles.pop(listed.server, None)
        else:
            self.server_troubles[listed.server] = listed
        self.server_counter += 1

    async def servers(self, request: ServersRequest) -> ServersReport:
        self._up()
        self.server_requests.append(request)
        deadline = time.monotonic() + request.wait
        while request.after == self.server_counter and not self.stopping and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
            self._up()
        seen = [self._seen(each.server) for each in request.servers]
        return ServersReport(counter=self.server_counter, servers=tuple(seen))

    def _seen(self, server: str) -> ServerSeen:
        """A failure keeps what the last whole list said."""
        listed, trouble = self.server_lists.get(server), self.server_troubles.get(server)
        if listed is None:
            return trouble or ServerSeen(server=server)
        whole = ServerSeen(
            server=server, outcome=ServerOutcome.LISTED, server_name="peer", server_version="1",
            protocol_version="2026-07-28", set_digest=listed.set_digest, tools=len(listed.tools),
        )  # fmt: skip
        if trouble is None:
            return whole
        return whole.model_copy(update={"outcome": trouble.outcome, "detail": trouble.detail})

    async def server_list(self, request: ListRequest) -> ServerList | None:
        self._up()
        self.list_requests.append(request)
        found = self.server_lists.get(request.server)
        return found if found is not None and found.set_digest == request.set_digest else None

    async def outbox(self, epoch: int, wait: float) -> Outbox:
        self._up()
        deadline = time.monotonic() + wait
        self.asking += 1
        while not (self.wanted or self.asked) and not self.stopping and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        self.asking -= 1
        return Outbox(entries=tuple(self.wanted), access=tuple(self.asked))

    async def acknowledge(self, acks: OutboxAcks) -> ReplicaState:
        self._up()
        self.acks += acks.acks
        done = {ack.id for ack in acks.acks}
        self.wanted = [entry for entry in self.wanted if entry.id not in done]
        self.asked = [entry for entry in self.asked if entry.id not in done]
        return self.state


def conditions(status: Any) -> dict[str, tuple[str, str]]:
    """Condition type → (status, reason)."""
    return {c["type"]: (c["status"], c["reason"]) for c in (status or {}).get("conditions", ())}


class HttpReplica(MemoryReplica):
    """The same replica behind the admin channel's HTTP, in a thread of its own; a context manager.

    `down` answers 503, as an overloaded one would; `stop` and `start` close and open its port.
    """

    def __init__(self, name: str = "replica-0", host: str = "127.0.0.1") -> None:
        super().__init__(name)
        self.host = host
        self.port = processes.free_port()
        self.url = f"http://{host}:{self.port}"
        self.tokens: set[str] = set()
        self.calls_report = CallsReport()
        """What it says of calls that people confirm."""
        self._loop = asyncio.new_event_loop()
        self._runner: web.AppRunner | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()

    def start(self) -> None:
        """Open the port."""
        self.stopping = False
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(60)

    def stop(self) -> None:
        """Close the port and every connection."""
        self.stopping = True
        if self._runner is not None:
            asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(60)
            self._runner = None

    async def calls(self, told: CallsTold) -> CallsReport:
        """Which calls wait, and which were made."""
        return self.calls_report

    async def _open(self) -> None:
        app = web.Application(client_max_size=1 << 28)
        bodies: list[tuple[str, Any, Any]] = [
            ("publish", Publish, self.publish),
            ("snapshot/chunks", None, self.stage),
            ("snapshot/commit", SnapshotCommit, self.commit),
            ("heartbeat", Heartbeat, self.heartbeat),
            ("credentials", Credentials, self.credentials),
            ("index", IndexRequest, self.index),
            ("outbox", OutboxAcks, self.acknowledge),
            ("calls", CallsTold, self.calls),
            ("backends", ProbeRequest, self.backends),
            ("servers", ServersRequest, self.servers),
            ("servers/list", ListRequest, self.server_list),
        ]
        for route, model, method in bodies:
            app.router.add_post(f"/v1/admin/{route}", self._handler(method, model))
        app.router.add_get("/v1/admin/state", self._handler(self.report, None))
        app.router.add_get("/v1/admin/index", self._handler(self.inventory, None))
        app.router.add_get("/v1/admin/outbox", self._handler(self.outbox, None, epoch=int, wait=float))
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, self.host, self.port).start()

    def _handler(self, method: Any, model: Any, **query: Any) -> Any:
        async def handle(request: web.Request) -> web.Response:
            self.tokens.add(request.headers.get("Authorization", ""))
            try:
                body = await request.read()
                arguments = [body] if body else []
                if model is not None:
                    arguments = [model.model_validate_json(body)]
                answer = await method(*arguments, **{k: kind(request.query[k]) for k, kind in query.items()})
            except RevisionMismatch as error:
                return _problem(409, "revision_mismatch", error)
            except EpochFenced as error:
                return _problem(409, "epoch_fenced", error)
            except IndexUnavailable as error:
                return _problem(503, "index_unavailable", error)
            except ReplicaUnavailable as error:
                return _problem(503, "unavailable", error)
            if answer is None:
                return _problem(404, "not_listed", LookupError("not held"))
            return web.Response(text=answer.model_dump_json(), content_type="application/json")

        return handle


def _problem(status: int, code: str, error: Exception) -> web.Response:
    return web.json_response({"code": code, "detail": str(error)}, status=status)
