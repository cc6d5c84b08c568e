"""The HTTP face of the example tools: `POST /tools/<tool>` with a JSON object, and `GET /healthz`.

A call is refused unless the registry's assertion comes with it, made for this very request and not used before.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from typing import Final

import jwt
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from toolcrib_cli.example_tools.arguments import Arguments
from toolcrib_cli.example_tools.assertion import CallAssertions
from toolcrib_cli.example_tools.calculator import calculate
from toolcrib_cli.example_tools.database import SampleDatabase
from toolcrib_cli.example_tools.files import SharedFolder
from toolcrib_cli.example_tools.problems import ToolError, problem_response
from toolcrib_cli.example_tools.samples import Samples
from toolcrib_cli.example_tools.simulation import simulate

LARGEST_BODY: Final = 64 * 1024
BODY_SECONDS: Final = 10.0
ASSERTION_HEADER: Final = "toolcrib-assertion"
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
        exception_handlers={
            ToolError: _on_tool_error,
            HTTPException: _on_http_exception,
            Exception: _on_defect,
        },
    )
    app.state.assertions = assertions
    return app


def echo(tool: str, arguments: Arguments) -> dict[str, object]:
    """Answer `{tool, arguments}`: what stands behind every tool of the example catalog."""
    return {"tool": tool, "arguments": dict(arguments.values)}


def _endpoint(tool: Tool) -> Callable[[Request], Awaitable[Response]]:
    async def call(request: Request) -> Response:
        arguments = Arguments.parse(await _body(request))
        # Files, SQLite and big numbers take their time: never on the event loop.
        return JSONResponse(await asyncio.to_thread(tool, arguments))

    return call


async def _echo(request: Request) -> Response:
    tool = request.path_params["tool"]
    if not _TOOL_NAME.fullmatch(tool):
        raise ToolError(HTTPStatus.NOT_FOUND, "not_found", "There is no such tool here.")
    return JSONResponse(echo(tool, Arguments.parse(await _body(request))))


async def _healthz(request: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def _body(request: Request) -> bytes:
    """The request body, at most 64 KiB, complete within 10 s, sent by the registry."""
    if "origin" in request.headers:
        # No page has business here; without this any site could talk to the tools of a developer's machine.
        raise ToolError(HTTPStatus.FORBIDDEN, "browser_refused", "These tools do not serve browsers.")
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        detail = "Send the arguments as application/json."
        raise ToolError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "not_json", detail)
    assertions: CallAssertions | None = request.app.state.assertions
    given = request.headers.getlist(ASSERTION_HEADER)
    if assertions is not None and len(given) != 1:
        detail = "Call this tool through the Toolcrib registry: it adds the header Toolcrib-Assertion."
        raise ToolError(HTTPStatus.UNAUTHORIZED, "assertion_required", detail)
    body = await _received(request)
    if assertions is not None:
        await asyncio.to_thread(_verify, assertions, request, given[0], body)
    return body


def _verify(assertions: CallAssertions, request: Request, assertion: str, body: bytes) -> None:
    target, query = request.scope["raw_path"].decode(), request.scope["query_string"].decode()
    try:
        target = f"{target}?{query}" if query else target
        assertions.verify(assertion, request.method, target, body, request.headers)
    except jwt.PyJWKClientConnectionError as error:
        detail = "The registry's keys cannot be fetched. Retry shortly."
        raise ToolError(HTTPStatus.SERVICE_UNAVAILABLE, "keys_unavailable", detail) from error
    except (jwt.PyJWTError, ValueError) as error:
        detail = f"The Toolcrib-Assertion is refused: {error}."
        raise ToolError(HTTPStatus.UNAUTHORIZED, "assertion_refused", detail) from error


async def _received(request: Request) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > LARGEST_BODY:
                    detail = f"The body is larger than {LARGEST_BODY // 1024} KiB."
                    raise ToolError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "body_too_large", detail)
    except TimeoutError as error:
        raise ToolError(
            HTTPStatus.REQUEST_TIMEOUT, "body_too_slow", "The body did not arrive in time."
        ) from error
    except ClientDisconnect as error:
        raise ToolError(HTTPStatus.BAD_REQUEST, "body_incomplete", "The body was cut off.") from error
    return bytes(body)


def _on_tool_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ToolError)
    return problem_response(error.status, error.code, error.detail)


def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    response = problem_response(error.status_code, HTTPStatus(error.status_code).name.lower(), error.detail)
    response.headers.update(error.headers or {})
    return response


def _on_defect(request: Request, error: Exception) -> Response:
    return problem_response(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", "The tool failed; see its log.")
