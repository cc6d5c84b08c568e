"""The OpenAPI document: problem answers of every route, the security scheme, nothing that is not so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from toolcrib.version import __version__
from toolcrib.wire.api import Problem
from toolcrib_registry.http.problems import CODES, PROBLEM_JSON
from toolcrib_registry.next_steps import NEXT_STEPS

Responses = dict[int | str, dict[str, Any]]

EVERY = ("not_ready", "invalid_request", "token_in_query", "origin_refused", "wrong_host")
"""What any route may answer."""
BODY = ("invalid_json", "too_large", "unsupported_media_type", "large_requests_busy")
"""What a route that takes a JSON body may answer for it."""
CALL_STATUSES = {
    422: "The tool refused the call (`tool_error`).",
    502: "The backend failed or may not be called (`upstream_*`, `egress_refused`).",
    504: "The backend did not answer in time (`upstream_timeout`).",
}


def documented_only() -> NoReturn:
    """The body of routes that the edge answers: FastAPI has them for their documentation alone."""
    raise NotImplementedError("the edge answers this")


def problems(*codes: str, calls: bool = False) -> Responses:
    """The `responses` of a route that may answer with these codes, besides those of every route."""
    by_status: dict[int, list[str]] = {}
    for code in (*EVERY, *codes):
        by_status.setdefault(CODES[code][0], []).append(code)
    made: Responses = {}
    for status, names in sorted(by_status.items()):
        made[status] = _problem(" or ".join(f"`{n}`" for n in names), status, names)
    if calls:
        for status, text in CALL_STATUSES.items():
            made[status] = _problem(text, status, [])
    return made


def _problem(text: str, status: int, codes: Sequence[str]) -> dict[str, Any]:
    content: dict[str, Any] = {"schema": {"$ref": "#/components/schemas/Problem"}}
    if codes:
        content["examples"] = {
            code: {
                "value": {
                    "type": f"urn:toolcrib:problem:{code}",
                    "title": CODES[code][1],
                    "status": status,
                    "code": code,
                    "detail": "What is wrong.",
                    "hint": NEXT_STEPS[code],
                }
            }
            for code in codes
        }
    return {"description": text, "content": {PROBLEM_JSON: content}}


def document(
    app: FastAPI, *, title: str, description: str, extra_models: Sequence[type[BaseModel]] = ()
) -> None:
    """Give `app` its exact OpenAPI document, made once."""
    made: dict[str, Any] = {}

    def openapi() -> dict[str, Any]:
        if not made:
            made.update(_document(app, title, description, extra_models))
        return made

    app.openapi = openapi  # type: ignore[method-assign]


def _document(
    app: FastAPI, title: str, description: str, extra_models: Sequence[type[BaseModel]]
) -> dict[str, Any]:
    found = get_openapi(title=title, version=__version__, description=description, routes=app.routes)
    schemas = found.setdefault("components", {}).setdefault("schemas", {})
    models: list[type[BaseModel]] = [Problem, *extra_models]
    _, extra = models_json_schema(
        [(m, "validation") for m in models], ref_template="#/components/schemas/{model}"
    )
    schemas.update(extra.get("$defs", {}))
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    for path in found["paths"].values():
        for operation in path.values():
            # FastAPI announces its own validation answer; here it is 400, a problem document
            answer = operation["responses"].get("422", {})
            if "HTTPValidationError" in str(answer):
                del operation["responses"]["422"]
    found["components"]["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}
    }
    return found


BEARER: dict[str, Any] = {"security": [{"bearer": []}]}
"""For routes that answer nothing without a token."""
OPTIONAL_BEARER: dict[str, Any] = {"security": [{}, {"bearer": []}]}
"""For routes that answer with nothing (or a list, where that is switched on) without a token."""
