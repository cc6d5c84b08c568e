"""The admin channel: publishes, heartbeats, credentials and the search index, for `adminSubjects`.

No tool scope opens it: its tokens have an audience of their own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ValidationError

from toolcrib import wording
from toolcrib.errors import EpochFenced, RevisionMismatch
from toolcrib.telemetry import logs
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
    SnapshotChunk,
    SnapshotCommit,
)
from toolcrib_registry.http.bodies import BODY, too_large
from toolcrib_registry.http.documentation import BEARER, problems
from toolcrib_registry.http.problems import ProblemError
from toolcrib_registry.http.requests import DepsOf
from toolcrib_registry.policy.staging import StageTooLarge
from toolcrib_registry.search.errors import SearchError

log = logging.getLogger(__name__)

BODIES: tuple[type[BaseModel], ...] = (
    Publish,
    SnapshotChunk,
    SnapshotCommit,
    Heartbeat,
    Credentials,
    CallsTold,
    IndexRequest,
    OutboxAcks,
    ProbeRequest,
    ServersRequest,
    ListRequest,
)
_Body = TypeVar("_Body", bound=BaseModel)


router = APIRouter(tags=["admin"])
_TOKEN = ("unauthenticated", "invalid_token", "not_admin")


def _takes(model: type[BaseModel]) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {**BEARER, "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


async def _read(request: Request, model: type[_Body]) -> _Body:
    return await _parsed(request.scope.pop(BODY), model)  # a whole snapshot is not held twice


async def _parsed(body: bytes, model: type[_Body]) -> _Body:
    """Parsed in a thread: a full snapshot of an operator of an earlier version may be many megabytes."""
    try:
        return await asyncio.to_thread(model.model_validate_json, body)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(p) for p in first["loc"])
        raise ProblemError("invalid_request", f"{where}: {wording.said(first)}") from None


@router.get("/v1/admin/state", openapi_extra=BEARER, responses=problems(*_TOKEN))
async def state(deps: DepsOf) -> ReplicaState:
    """The revision held, and its hash."""
    return deps.state.report()


@router.post(
    "/v1/admin/publish",
    openapi_extra=_takes(Publish),
    responses=problems(*_TOKEN, "revision_mismatch", "epoch_fenced", "too_large"),
)
async def publish(deps: DepsOf, request: Request) -> ReplicaState:
    """Apply one step, or a full snapshot. When this answers, every later request sees it."""
    body = await _read(request, Publish)
    with _refusals(deps, publish=True):
        report = await deps.state.publish(body)
    removed = body.removed
    log.info(
        "revision %s applied", body.to,
        extra=logs.about(
            revision=str(body.to), base=None if body.base is None else str(body.base), tools=len(body.tools),
            bindings=len(body.bindings), removed=len(removed.tools) + len(removed.bindings),
        ),
    )  # fmt: skip
    return report


@router.post(
    "/v1/admin/snapshot/chunks",
    openapi_extra=_takes(SnapshotChunk),
    responses=problems(*_TOKEN, "revision_mismatch", "epoch_fenced", "too_large"),
)
async def stage(deps: DepsOf, request: Request) -> ReplicaState:
    """Take one chunk of a full snapshot. Nothing changes until the commit."""
    body: bytes = request.scope[BODY]
    chunk = await _parsed(body, SnapshotChunk)
    with _refusals(deps):
        return await deps.staging.take(chunk, body)


@router.post(
    "/v1/admin/snapshot/commit",
    openapi_extra=_takes(SnapshotCommit),
    responses=problems(*_TOKEN, "revision_mismatch", "epoch_fenced"),
)
async def commit(deps: DepsOf, request: Request) -> ReplicaState:
    """Put the staged snapshot into effect, whole. When this answers, every later request sees it."""
    body = await _read(request, SnapshotCommit)
    with _refusals(deps, publish=True):
        report = await deps.staging.commit(body)
    held = deps.state.snapshot
    log.info(
        "revision %s applied", body.to,
        extra=logs.about(revision=str(body.to), base=None, chunks=body.chunks, tools=len(held.tools),
                         bindings=len(held.bindings)),
    )  # fmt: skip
    return report


@router.post(
    "/v1/admin/heartbeat",
    openapi_extra=_takes(Heartbeat),
    responses=problems(*_TOKEN, "revision_mismatch", "epoch_fenced"),
)
async def heartbeat(deps: DepsOf, request: Request) -> ReplicaState:
    """The leader is alive; 409 where it holds something else."""
    body = await _read(request, Heartbeat)
    with _refusals(deps):
        return deps.state.heartbeat(body)


@router.post(
    "/v1/admin/credentials", openapi_extra=_takes(Credentials), responses=problems(*_TOKEN, "epoch_fenced")
)
async def credentials(deps: DepsOf, request: Request) -> ReplicaState:
    """Replace all credentials; they stay in memory."""
    body = await _read(request, Credentials)
    with _refusals(deps):
        deps.state.fence(body.epoch)
        deps.credentials.replace(body)
    return deps.state.report()


@router.post("/v1/admin/calls", openapi_extra=_takes(CallsTold), responses=problems(*_TOKEN, "epoch_fenced"))
async def calls(deps: DepsOf, request: Request) -> CallsReport:
    """Take over what people decided about single calls; which calls wait at this replica, and which were made."""
    body = await _read(request, CallsTold)
    with _refusals(deps):
        deps.state.fence(body.epoch)
    deps.confirmations.told(body)
    return deps.confirmations.report()


@router.post(
    "/v1/admin/index",
    openapi_extra=_takes(IndexRequest),
    responses=problems(*_TOKEN, "epoch_fenced", "index_unavailable"),
)
async def index(deps: DepsOf, request: Request) -> IndexAnswer:
    """Embed, write and read back what is named."""
    body = await _read(request, IndexRequest)
    with _refusals(deps):
        return await deps.index.apply(body)


@router.get("/v1/admin/index", openapi_extra=BEARER, responses=problems(*_TOKEN, "index_unavailable"))
async def inventory(deps: DepsOf) -> IndexInventory:
    """What the index holds; entries that are not of the snapshot's version show another digest."""
    with _refusals(deps):
        return await deps.index.inventory()


@router.post(
    "/v1/admin/backends", openapi_extra=_takes(ProbeRequest), responses=problems(*_TOKEN, "epoch_fenced")
)
async def probe_backends(deps: DepsOf, request: Request) -> BackendReport:
    """Probe backends for some time, and say what is known of them."""
    body = await _read(request, ProbeRequest)
    with _refusals(deps):
        deps.state.fence(body.epoch)
    return deps.prober.asked(body)


@router.get("/v1/admin/backends", openapi_extra=BEARER, responses=problems(*_TOKEN))
async def backends(deps: DepsOf) -> BackendReport:
    """What this replica knows of backends: the last probe of each, when it was and how long it took."""
    return deps.prober.report()


@router.post(
    "/v1/admin/servers", openapi_extra=_takes(ServersRequest), responses=problems(*_TOKEN, "epoch_fenced")
)
async def watch_servers(deps: DepsOf, request: Request) -> ServersReport:
    """Watch these MCP servers for some time, and say what is known of them: at once, or with the next change."""
    body = await _read(request, ServersRequest)
    with _refusals(deps):
        deps.state.fence(body.epoch)
        deps.importer.asked(body)
        report = await deps.importer.report(body.after, body.wait, lambda: deps.state.closing)
        deps.state.fence(body.epoch)
    return report


@router.post(
    "/v1/admin/servers/list",
    openapi_extra=_takes(ListRequest),
    responses={**problems(*_TOKEN, "not_listed"), 200: {"model": ServerList}},
    response_class=Response,
)
async def server_list(deps: DepsOf, request: Request) -> Response:
    """The tools of one server, as a report named them."""
    body = await _read(request, ListRequest)
    found = await deps.importer.listed(body.server, body.set_digest)
    if found is None:
        raise ProblemError("not_listed", "This list is not held any more. Ask for the servers again.")
    return Response(found, media_type="application/json")


@router.get(
    "/v1/admin/outbox",
    openapi_extra=BEARER,
    responses=problems(*_TOKEN, "epoch_fenced", "invalid_request"),
)
async def outbox(
    deps: DepsOf,
    request: Request,
    epoch: Annotated[int, Query(ge=0, lt=1 << 63, description="The asking leader's.")],
    wait: Annotated[float, Query(ge=0, le=30, description="Seconds to wait for a first entry.")] = 0.0,
) -> Outbox:
    """Registrations and access requests that wait to be created; each until it is acknowledged."""
    with _refusals(deps):
        return await deps.outbox.entries(epoch, wait, gone=request.is_disconnected)


@router.post(
    "/v1/admin/outbox",
    openapi_extra=_takes(OutboxAcks),
    responses=problems(*_TOKEN, "epoch_fenced"),
)
async def acknowledge(deps: DepsOf, request: Request) -> ReplicaState:
    """Say what became of entries; one whose caller has gone is ignored."""
    body = await _read(request, OutboxAcks)
    with _refusals(deps):
        deps.outbox.acknowledge(body)
    return deps.state.report()


@contextmanager
def _refusals(deps: DepsOf, *, publish: bool = False) -> Iterator[None]:
    """What the parts refuse becomes a problem document; of a publish the outcome is counted."""
    try:
        yield
    except (RevisionMismatch, EpochFenced, SearchError, StageTooLarge) as error:
        problem = _problem(deps, error)
        if publish:
            deps.metrics.published(problem.code)
        raise problem from error
    if publish:
        deps.metrics.published("applied")


def _problem(
    deps: DepsOf, error: RevisionMismatch | EpochFenced | SearchError | StageTooLarge
) -> ProblemError:
    match error:
        case RevisionMismatch():
            held = deps.state.report().model_dump(mode="json")
            return ProblemError("revision_mismatch", f"{error}; send a full snapshot.", extra={"state": held})
        case EpochFenced():
            return ProblemError("epoch_fenced", str(error))
        case StageTooLarge():
            return too_large(error.limit)
    return ProblemError("index_unavailable", str(error)[:300], headers={"Retry-After": "5"})
