"""What a call must be before a tool sees it: JSON of bounded size, sent by the registry; and how refusals are answered.

Separate from the example tools: `toolcrib memory` takes its calls by the same rules.
"""

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import jwt
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from toolcrib_cli.example_tools.assertion import CallAssertions
from toolcrib_cli.example_tools.problems import ToolError, problem_response

LARGEST_BODY: Final = 64 * 1024
BODY_SECONDS: Final = 10.0
ASSERTION_HEADER: Final = "toolcrib-assertion"


async def received(
    request: Request, assertions: CallAssertions | None, largest: int = LARGEST_BODY
) -> tuple[bytes, Mapping[str, Any]]:
    """The request's body and the claims of its assertion (none where nobody has to send one).

    The body has at most `largest` bytes and is complete within 10 s. Raises ToolError.
    """
    if "origin" in request.headers:
        # No page has business here; without this any site could talk to the tools of a developer's machine.
        raise ToolError(HTTPStatus.FORBIDDEN, "browser_refused", "These tools do not serve browsers.")
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        detail = "Send the arguments as application/json."
        raise ToolError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "not_json", detail)
    given = request.headers.getlist(ASSERTION_HEADER)
    if assertions is not None and len(given) != 1:
        detail = "Call this tool through the Toolcrib registry: it adds the header Toolcrib-Assertion."
        raise ToolError(HTTPStatus.UNAUTHORIZED, "assertion_required", detail)
    body = await _whole(request, largest)
    if assertions is None:
        return body, {}
    return body, await asyncio.to_thread(_verify, assertions, request, given[0], body)


def _verify(assertions: CallAssertions, request: Request, assertion: str, body: bytes) -> Mapping[str, Any]:
    target, query = request.scope["raw_path"].decode(), request.scope["query_string"].decode()
    try:
        target = f"{target}?{query}" if query else target
        return assertions.verify(assertion, request.method, target, body, request.headers)
    except jwt.PyJWKClientConnectionError as error:
        detail = "The registry's keys cannot be fetched. Retry shortly."
        raise ToolError(HTTPStatus.SERVICE_UNAVAILABLE, "keys_unavailable", detail) from error
    except (jwt.PyJWTError, ValueError) as error:
        detail = f"The Toolcrib-Assertion is refused: {error}."
        raise ToolError(HTTPStatus.UNAUTHORIZED, "assertion_refused", detail) from error


async def _whole(request: Request, largest: int) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > largest:
                    detail = f"The body is larger than {largest // 1024} KiB."
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


HANDLERS: Final[Mapping[Any, Any]] = {
    ToolError: _on_tool_error,
    HTTPException: _on_http_exception,
    Exception: _on_defect,
}
"""What an application answers to each error: a problem document."""
