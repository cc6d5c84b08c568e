"""The HTTP face of the example tools: `POST /tools/<tool>` with a JSON object, and `GET /healthz`.

A call is refused unless the registry's assertion comes with it, made for this very request and not used before.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from toolcrib_cli.example_tools.arguments import Arguments
from toolcrib_cli.example_tools.assertion import CallAssertions
from toolcrib_cli.example_tools.calculator import calculate
from toolcrib_cli.example_tools.database import SampleDatabase
from toolcrib_cli.example_tools.files import SharedFolder
from toolcrib_cli.example_tools.problems import ToolError
from toolcrib_cli.example_tools.receiving import HANDLERS, received
from toolcrib_cli.example_tools.samples import Samples
from toolcrib_cli.example_tools.simulation import simulate

_TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,253}")

Tool = Callable[[Arguments], dict[str, object]]


def create_app(samples: Samples, assertions: CallAssertions | None) -> Starlette:
    """The example tools as an ASGI application over the given samples: no socket, and no state but used assertions.

    `assertions` None: anybody may call.
    """
    tools: dict[str, Tool] = {
        "calculator": calculate,
        "read_file": SharedFolder(samples.shared_folder).read,
        "database_query": SampleDatabase(samples.database).query,
        "simulation_data": simulate,
        "echo": partial(echo, "echo"),
    }
    routes = [Route(f"/tools/{name}", _endpoint(tool), methods=["POST"]) for name, tool in tools.items()]
    app = Starlette(
        routes=[*routes, Route("/tools/echo/{tool}", _echo, methods=["POST"]), Route("/healthz", _healthz)],
        exception_handlers=HANDLERS,
    )
    app.state.assertions = assertions
    return app


def echo(tool: str, arguments: Arguments) -> dict[str, object]:
    """Answer `{tool, arguments}`: what stands behind every tool of the example catalog."""
    return {"tool": tool, "arguments": dict(arguments.values)}


def _endpoint(tool: Tool) -> Callable[[Request], Awaitable[Response]]:
    async def call(request: Request) -> Response:
        arguments = Arguments.parse((await received(request, request.app.state.assertions))[0])
        # Files, SQLite and big numbers take their time: never on the event loop.
        return JSONResponse(await asyncio.to_thread(tool, arguments))

    return call


async def _echo(request: Request) -> Response:
    tool = request.path_params["tool"]
    if not _TOOL_NAME.fullmatch(tool):
        raise ToolError(HTTPStatus.NOT_FOUND, "not_found", "There is no such tool here.")
    return JSONResponse(
        echo(tool, Arguments.parse((await received(request, request.app.state.assertions))[0]))
    )


async def _healthz(request: Request) -> Response:
    return JSONResponse({"status": "ok"})
