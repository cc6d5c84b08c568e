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


REMEDIES: dict[str, str] = {
    "invalid_json": "Send one JSON object in UTF-8, no key twice, not nested too deeply.",
    "invalid_request": "`errors` names the fields.",
    "invalid_arguments": "`errors` lists what does not fit; the schema is in `/v1/describe`.",
    "arguments_too_complex": "Send fewer or shorter values in one call, or simplify the tool's schema: fewer alternatives, smaller patterns.",
    "invalid_cursor": "Begin again without a cursor.",
    "token_in_query": "Send the token in the header `Authorization: Bearer …`.",
    "already_registered": "Choose another name.",
    "hidden_text": "`detail` says where and which code points; delete them. Newline and tab are allowed, joiners where a script or emoji needs them.",
    "schema_unsafe": "`detail` says where: only `#/…` references, bounded depth and size.",
    "reserved_scope": "Choose a scope that does not begin with `registry:`.",
    "egress_refused": "400 at a registration, 502 at a call. The operator of the registry opens hosts with `egress.allow`.",
    "unauthenticated": "Send a bearer token.",
    "invalid_token": "`detail` says why: expired, another audience, another issuer. Get a new one.",
    "not_permitted": "Denied and unknown tools answer alike. Discover again; the decision log has the reason.",
    "insufficient_scope": "Ask the provider for a token with the scopes in `WWW-Authenticate`."
    " Answered on `/mcp` and `/mcp/direct` only, with `discovery.step_up`.",
    "revoked": "The tool may have done its work. Discover again; the decision log has the reason.",
    "not_admin": "For operators: list the subject in `admin_subjects`, and get a token with the admin audience.",
    "origin_refused": "Web pages of other origins are let in by `allowed_origins`.",
    "registration_off": "Apply a Tool instead, or set `registration`.",
    "not_found": "See [HTTP surface](http.md).",
    "tool_not_found": "Discover again; hidden and absent answer alike.",
    "method_not_allowed": "See [HTTP surface](http.md).",
    "ambiguous_name": "Use one of `tool_ids`.",
    "cursor_stale": "Begin again without a cursor.",
    "revision_mismatch": "For operators: a full snapshot follows.",
    "epoch_fenced": "For operators: another one leads.",
    "not_acceptable": "Send `Accept: application/json, text/event-stream`, as MCP has it.",
    "request_timeout": "Send the body without pauses. Where the network is slow, raise `limits.body_seconds`.",
    "too_large": "Send a smaller body, or raise `limits.body_bytes`.",
    "list_too_large": "Read `GET /v1/tools` in pages, or search (`POST /v1/search`). `limits.list_bytes` is the bound.",
    "unsupported_media_type": "Send `Content-Type: application/json`.",
    "wrong_host": "Add the name to `allowed_hosts` if it is yours.",
    "limit_exceeded": "Wait (`Retry-After`); `limit` says which. See [limits](../guides/limits.md).",
    "internal": "The registry's log says what, under the request's id.",
    "no_backend": "Nothing executes this tool yet; its author sets `spec.backend`.",
    "policy_stale": "Wait (`Retry-After`); no operator has been heard for `policy_max_age`.",
    "limits_unavailable": "Wait (`Retry-After`): the store of counters is away (read-only tools are served), or too many calls wait.",
    "audit_unavailable": "Wait (`Retry-After`); the decision cannot be recorded now, and `audit.mode` is strict.",
    "not_listed": "For operators: the server's list has changed, or this replica imports no more; they ask again.",
    "index_unavailable": "For operators: the search index is away; they keep trying.",
    "large_requests_busy": "Wait (`Retry-After`), and send fewer bodies above 16 KiB at one time: a caller has room for 4 MiB of them.",
    "too_many_streams": "Try again later, or close your others; `limits.watch_streams` and `limits.watch_streams_per_subject` are the bounds.",
    "not_durable": "`detail` says whether it may still come. Is the disk full, is an operator there?",
    "not_ready": "Wait as `Retry-After` says: no full snapshot has come from an operator yet, or too many access reviews wait.",
    "shutting_down": "Ask again; a call may have reached its tool: repeat it only if that does no harm.",
    "credential_pending": "Try again soon: this replica has not got the credential. See the Tool's Ready condition.",
    "service_pending": "Create the Service that the Tool names; its Ready condition says what is missing. Outside a cluster: `--backend`.",
    "backend_unavailable": "Too many of its backend's calls failed. Retry after `Retry-After`; the backend's log says why.",
    "backend_busy": "Wait (`Retry-After`), and send fewer calls at one time. Is the backend slow? `limits.backend_calls` is the bound.",
    "upstream_unreachable": "Is the tool's own service up?",
    "upstream_timeout": "The tool may have done its work. Raise `spec.backend.http.timeout`, or make the tool faster.",
    "upstream_redirect": "Let the Tool name the final address.",
    "upstream_too_large": "Let the tool answer with less.",
    "upstream_protocol": "`detail` says what came: HTML, a response cut off, invalid JSON. Let the tool answer with JSON or text.",
    "tool_error": "`upstream_status` and the tool's own words are in the document; mend the arguments.",
    "input_required": "Call the tool over MCP (`/mcp`, revision 2026-07-28), which can carry its questions.",
    "transport_unsupported": "The tool's MCP server speaks HTTP+SSE (MCP 2024-11-05) alone. Use Streamable HTTP, or a bridge to it.",
    "backend_auth_failed": "The detail says why the authorization server gave no access token, or that the backend refuses it. "
    "Check the Secret that `auth` names, and `auth.oauth`.",
    "login_required": "The tool's MCP server wants a token of a login, which the registry does not make. Give its ToolServer a credential.",
    "upstream_error": "The tool's own service failed; its log says why.",
}


def errors_page() -> str:
    """Every problem code with its statuses and what to do."""
    statuses: dict[str, set[int]] = {code: {status} for code, (status, _) in CODES.items()}
    meanings = {code: title + "." for code, (_, title) in CODES.items()}
    for kind in CallError.__subclasses__():
        statuses[kind.code].add(CALL_STATUS.get(kind.code, CODES[kind.code][0]))
        if meanings[kind.code] == kind.code.replace("_", " ").capitalize() + ".":  # a title that says no more
            meanings[kind.code] = (kind.__doc__ or "").strip().partition(";")[0].rstrip(".") + "."
    unknown = statuses.keys() ^ REMEDIES.keys()
    if unknown:
        raise SystemExit(
            f"docs/reference_pages/surface.py: REMEDIES and the code differ: {', '.join(sorted(unknown))}"
        )
    text = "# Errors\n\nEvery error is `application/problem+json` with `type`, `title`, `status`, `code` and `detail`. Act on `code`: it is\n"
    text += "stable. `detail` is for people. A `503` may carry `Retry-After`. Every answer carries `X-Request-Id`.\n\n"
    rows = []
    for found in sorted(statuses, key=lambda c: (min(statuses[c]), c)):
        shown = ", ".join(map(str, sorted(statuses[found])))
        rows.append((code(found), shown, meanings[found], REMEDIES[found]))
    text += table(("code", "status", "meaning", "what to do"), rows)
    text += "\nOver MCP a failed call is a result with `isError`, and its code stands in `_meta` as `toolcrib.dev/code`; what is not permitted is\n"
    text += "an unknown tool. One code is MCP's alone: `not_read_only`, of `call_read_tool` for a tool that may change something.\n"
    text += "An answer that its tool's output schema does not allow is `upstream_protocol` there, with the answer.\n"
    text += "\nThe token endpoint of the local mode answers RFC 6749's own form instead: `error` and `error_description`.\n"
    return text
