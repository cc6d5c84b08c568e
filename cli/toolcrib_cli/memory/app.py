"""The HTTP face of memory: the two Tools, and what says whether the program works.

A call is refused unless the registry's assertion comes with it; whose memory it is about, that assertion says.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any, Final, TypeVar

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from toolcrib.telemetry.logs import Trouble
from toolcrib_cli.example_tools.arguments import Arguments
from toolcrib_cli.example_tools.assertion import CallAssertions
from toolcrib_cli.example_tools.problems import invalid_argument, problem_response
from toolcrib_cli.example_tools.receiving import HANDLERS, received
from toolcrib_cli.memory.caller import owner_of
from toolcrib_cli.memory.summary import summarise
from toolcrib_cli.session_store.database import StoreError
from toolcrib_cli.session_store.memories import Memories, MemoryFull, Owner

log = logging.getLogger(__name__)

LONGEST_MESSAGE: Final = 16_384
LONGEST_AGENT: Final = 512
LONGEST_SESSION: Final = 128
MOST_RECENT: Final = 10
MOST_TOKENS: Final = 2_000
LARGEST_TURN: Final = 2**31 - 1
LARGEST_BODY: Final = 256 * 1024
"""Bytes: a message of the longest kind, each character escaped."""
STORE_SECONDS: Final = 8.0
"""Less than the Tools' timeout, so that agents get the reason."""
READY_SECONDS: Final = 2.0
THREADS: Final = 8

_T = TypeVar("_T")
_Endpoint = Callable[[Request], Awaitable[Response]]


def create_app(memories: Memories, assertions: CallAssertions) -> Starlette:
    """The program as an ASGI application; without a socket."""

    def store(owner: Owner, arguments: Arguments) -> dict[str, object]:
        turn = arguments.integer("turn_id", least=0, most=LARGEST_TURN)
        message = arguments.text("message", longest=LONGEST_MESSAGE)
        if "\0" in message:
            raise invalid_argument("The argument 'message' holds a NUL character.")
        count = memories.keep(owner, _session(arguments), turn, message)
        return {"status": "stored", "memories_count": count}

    def recall(owner: Owner, arguments: Arguments) -> dict[str, object]:
        tokens = arguments.integer("max_tokens", default=100, least=1, most=MOST_TOKENS)
        recent = arguments.integer("recent_count", default=3, least=1, most=MOST_RECENT)
        found = memories.recall(owner, _session(arguments), recent)
        return {
            "status": "ok" if found.count else "empty",
            "summary": summarise(str(arguments.values["agent_id"]), found, tokens),
            "memories_count": found.count,
            "recent_count": len(found.recent),
        }

    async def healthz(request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def readyz(request: Request) -> Response:
        await worker.run(READY_SECONDS, memories.check)
        return JSONResponse({"status": "ok"})

    def endpoint(tool: Callable[[Owner, Arguments], dict[str, object]], *own: str) -> _Endpoint:
        async def call(request: Request) -> Response:
            body, claims = await received(request, assertions, LARGEST_BODY)
            arguments = Arguments.parse(body)
            arguments.expect({"agent_id", "game_session_id", *own})
            owner = owner_of(claims, arguments.text("agent_id", longest=LONGEST_AGENT))
            return JSONResponse(await worker.run(STORE_SECONDS, tool, owner, arguments))

        return call

    worker = _Worker()
    return Starlette(
        routes=[
            Route("/tools/store_memory", endpoint(store, "turn_id", "message"), methods=["POST"]),
            Route(
                "/tools/get_compressed_memory",
                endpoint(recall, "max_tokens", "recent_count"),
                methods=["POST"],
            ),
            Route("/healthz", healthz),
            Route("/readyz", readyz),
        ],
        exception_handlers={**HANDLERS, StoreError: _unavailable, MemoryFull: _full},
    )


class _Worker:
    """Runs what blocks on the store in threads of its own: a database that hangs must not hold up anything else."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, "store")
        self._trouble = Trouble(log)

    async def run(self, seconds: float, work: Callable[..., _T], *arguments: Any) -> _T:
        """What `work` returns. Raises StoreError, also where it takes longer than `seconds`; it may still be done then."""
        try:
            async with asyncio.timeout(seconds):
                done = await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)
        except TimeoutError as error:
            self._trouble.failed("the store does not answer within %d s", seconds)
            raise StoreError("the store does not answer") from error
        except StoreError as error:
            self._trouble.failed("%s", error)
            raise
        self._trouble.over("the store answers again")
        return done


def _session(arguments: Arguments) -> str:
    session = arguments.text("game_session_id", longest=LONGEST_SESSION)
    if not session.isprintable():
        raise invalid_argument("The argument 'game_session_id' holds control characters.")
    return session


def _unavailable(request: Request, error: Exception) -> Response:
    detail = "Memory cannot be reached. Retry shortly: a message is stored once, however often it comes."
    return problem_response(HTTPStatus.SERVICE_UNAVAILABLE, "memory_unavailable", detail)


def _full(request: Request, error: Exception) -> Response:
    return problem_response(HTTPStatus.UNPROCESSABLE_ENTITY, "memory_full", str(error))
