"""Pages about HTTP: routes, and errors with what to do."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reference_pages.markdown import code, table

from toolcrib_registry.calls.errors import CallError
from toolcrib_registry.http.app import openapi_documents
from toolcrib_registry.http.problems import CALL_STATUS, CODES
from toolcrib_registry.identity.issuer import ClientTokens, LocalIssuer
from toolcrib_registry.next_steps import NEXT_STEPS

RECORDED = Path(__file__).parent / "recorded" / "http"
"""A request and its response for each route; tests/component/local/test_http_examples.py sends and compares them."""
_MOST_LINES = 32


def documents() -> dict[str, Mapping[str, Any]]:
    """The OpenAPI documents, by listener."""
    with tempfile.TemporaryDirectory() as folder:
        router = ClientTokens(LocalIssuer.open(Path(folder) / "issuer"), lambda namespace, name: set())
        return dict(zip(("agents", "admin", "metrics"), openapi_documents(router), strict=True))


def http_page() -> str:
    """Every route of the three listeners, each with a request and a response."""
    made = documents()
    text = "# HTTP surface\n\nThe registry serves its OpenAPI document at `/openapi.json`, with every body. In the local mode, `/docs` shows\n"
    text += "it in a browser. Errors are problem documents (RFC 9457) with a stable `code`: [errors](errors.md).\n\n"
    text += "Below the tables: a request and a response for each route, as a registry sent it; long ones end with `…`. `$SAFECRACKER` and\n"
    text += "`$HACKER` are tokens of agents (`toolcrib token safecracker`), `$ADMIN` is one with `registry:admin` and `registry:write`.\n\n"
    text += "## Agents' listener\n\n`POST /oauth/token` exists in the local mode only.\n\n" + _routes(
        made["agents"]
    )
    text += "\n## Admin listener\n\nFor the operator and probes; never in an Ingress. `/v1/admin` takes tokens of the admin audience from\n"
    text += "`admin_subjects` only. In the local mode it is on the same port.\n\n"
    text += _routes(made["admin"])
    text += "\n## Metrics listener\n\nFor Prometheus, without a token: [who may scrape](../guides/prometheus.md#who-may-scrape).\n"
    text += "In the local mode it is on the same port.\n\n" + _routes(made["metrics"])
    text += "\n## Examples: agents' listener\n" + _recorded("agents")
    text += "\n## Examples: admin listener\n\n`$ADMIN` is here a token of the admin audience.\n" + _recorded(
        "admin"
    )
    return text + "\n## Examples: metrics listener\n" + _recorded("metrics")


def _routes(document: Mapping[str, Any]) -> str:
    rows = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            codes = ", ".join(sorted(operation.get("responses", {})))
            rows.append((code(f"{method.upper()} {path}"), operation.get("summary", ""), codes))
    return table(("route", "what", "answers"), rows)


def _recorded(listener: str) -> str:
    text = ""
    for file in sorted(RECORDED.glob(f"{listener}-*.http")):
        request, _, response = file.read_text(encoding="utf-8").partition("\n###\n")
        lines = response.strip("\n").split("\n")
        if len(lines) > _MOST_LINES:
            lines = [*lines[:_MOST_LINES], "…"]
        shown = "\n".join((request.strip("\n"), "", *(_short(line) for line in lines)))
        text += f"\n```http\n{shown}\n```\n"
    return text


def _short(line: str) -> str:
    return line if len(line) <= 160 else f"{line[:159]}…"


def errors_page() -> str:
    """Every problem code with its statuses and what to do."""
    statuses: dict[str, set[int]] = {code: {status} for code, (status, _) in CODES.items()}
    meanings = {code: title + "." for code, (_, title) in CODES.items()}
    for kind in CallError.__subclasses__():
        statuses[kind.code].add(CALL_STATUS.get(kind.code, CODES[kind.code][0]))
    text = "# Errors\n\nEvery error is `application/problem+json` with `type`, `title`, `status`, `code`, `detail` and `hint`. Act on `code`: it is\n"
    text += "stable. `detail` and `hint` (the column *what to do*) are for people. A `503` may carry `Retry-After`.\n"
    text += "Every answer carries `X-Request-Id`.\n\n"
    rows = []
    for found in sorted(statuses, key=lambda c: (min(statuses[c]), c)):
        shown = ", ".join(map(str, sorted(statuses[found])))
        rows.append((code(found), shown, meanings[found], NEXT_STEPS[found]))
    text += table(("code", "status", "meaning", "what to do"), rows)
    text += "\nOver MCP a failed call is a result with `isError`, and its code stands in `_meta` as `toolcrib.dev/code`; what is not permitted is\n"
    text += "an unknown tool. One code is MCP's alone: `not_read_only`, of `call_read_tool` for a tool that may change something.\n"
    text += "An answer that its tool's output schema does not allow is `upstream_protocol` there, with the answer.\n"
    text += "\nThe token endpoint of the local mode answers RFC 6749's own form instead: `error` and `error_description`.\n"
    return text
