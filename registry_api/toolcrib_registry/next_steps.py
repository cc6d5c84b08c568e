"""What to do about each problem: one sentence or two for each code, the member `hint` of every problem document.

The same table makes the column "what to do" of docs/reference/errors.md. A step depends on the code alone, so that
denied and unknown answer alike.
"""

from __future__ import annotations

from collections.abc import Mapping

_LATER = "Retry after the seconds in Retry-After."

NEXT_STEPS: Mapping[str, str] = {
    "invalid_json": "Send one JSON object in UTF-8, with each key once and at most 32 levels.",
    "invalid_request": "Correct the fields that `errors` or `detail` names. /openapi.json has every body.",
    "invalid_arguments": "Correct what `errors` lists. The schema of the arguments is in /v1/describe.",
    "arguments_too_complex": "Send fewer or shorter values in one call, or simplify the tool's schema: fewer alternatives, smaller patterns.",
    "invalid_cursor": "Start again without `cursor`.",
    "token_in_query": "Send the token in the header `Authorization: Bearer …`, and replace it.",
    "already_registered": "Choose another name.",
    "hidden_text": "Delete the characters that `detail` names. Newline and tab are allowed, joiners where a script or emoji needs them.",
    "schema_unsafe": "Change the schema at the place that `detail` names; `toolcrib validate` checks it before you send it.",
    "reserved_scope": "Choose a scope that does not begin with `registry:`.",
    "egress_refused": "Ask the registry's operator to allow the host in `egress.allow` (local mode: --allow-host), or use another address.",
    "unauthenticated": "Send a bearer token: `Authorization: Bearer …`.",
    "invalid_token": "Get a new token for this registry, from an issuer that it trusts. `detail` says what is wrong with this one.",
    "not_permitted": "List your tools again. `toolcrib access explain`, or the decision log, has the reason.",
    "insufficient_scope": "Ask the identity provider for a token with the scopes in WWW-Authenticate.",
    "revoked": "List your tools again. The tool may have done its work; the decision log has the reason.",
    "not_admin": "List the subject in `admin_subjects`, and send a token of the admin audience.",
    "origin_refused": "Add the page's origin to `allowed_origins`.",
    "registration_off": "Apply a Tool instead, or set `registration: true`.",
    "not_found": "See the paths in /openapi.json.",
    "tool_not_found": "List your tools again, or search for one. Hidden and absent tools answer alike.",
    "method_not_allowed": "Use a method that the header Allow lists.",
    "ambiguous_name": "Call it by one of `tool_ids`.",
    "already_granted": "Call the tool.",
    "cursor_stale": "Start again without `cursor`.",
    "revision_mismatch": "Send a full snapshot; the operator does so by itself.",
    "epoch_fenced": "Stop publishing: another operator leads.",
    "not_acceptable": "Send `Accept: application/json, text/event-stream`, as MCP specifies.",
    "request_timeout": "Send the body without pauses, or raise `limits.body_seconds`.",
    "too_large": "Send a smaller body, or raise `limits.body_bytes`.",
    "list_too_large": "Read GET /v1/tools in pages, or search with POST /v1/search. `limits.list_bytes` is the bound.",
    "unsupported_media_type": "Send `Content-Type: application/json`.",
    "wrong_host": "Use a name that the registry serves, or add this one to `allowed_hosts`.",
    "limit_exceeded": "Retry after the seconds in Retry-After. `limit` names the limit that is used up; a binding sets it.",
    "too_many_requests": "Wait until somebody decides. An agent has at most 3 open requests in a namespace, a namespace 100.",
    "internal": "Search the registry's log for the id in X-Request-Id.",
    "no_backend": "Set `spec.backend` of the Tool. Nothing executes it yet.",
    "policy_stale": f"{_LATER} If it lasts, check that an operator leads and reaches this replica.",
    "limits_unavailable": f"{_LATER} If it lasts, check the counter store (Redis). Read-only tools are served.",
    "audit_unavailable": f"{_LATER} If it lasts, check the disk of the decision log.",
    "not_listed": "Ask for the servers again: the list has changed, or this replica imports no more.",
    "index_unavailable": f"{_LATER} If it lasts, check the search index.",
    "large_requests_busy": f"{_LATER} Send fewer bodies above 16 KiB at one time; a caller has room for 4 MiB of them.",
    "too_many_streams": f"{_LATER} Close streams that you do not need, or raise `limits.watch_streams`, `limits.watch_streams_per_subject`.",
    "requests_unavailable": f"{_LATER} If it lasts, check that an operator leads and reaches this replica. Asking again does no harm.",
    "not_durable": "Check the disk, and that an operator runs. `detail` says whether the registration may still come.",
    "not_ready": f"{_LATER} The replica waits for its first snapshot or for keys, or too many access reviews wait.",
    "shutting_down": "Retry: another replica answers. A call may have reached its tool, so repeat it only if that does no harm.",
    "credential_pending": "Retry shortly. If it lasts, the Tool's condition Ready says what its Secret lacks.",
    "service_pending": "Create the Service that the Tool names; its condition Ready says what is missing. Outside a cluster: --backend.",
    "backend_unavailable": f"{_LATER} Too many calls of this backend failed: its own log says why.",
    "backend_busy": f"{_LATER} Send fewer calls at one time. `limits.backend_calls` is the bound.",
    "upstream_unreachable": "Check that the tool's own service runs and that the registry may connect to it.",
    "upstream_timeout": "Raise `spec.backend.http.timeout`, or make the tool faster. It may have done its work.",
    "upstream_redirect": "Name the final address in the Tool. Redirects are not followed.",
    "upstream_too_large": "Ask for less, or let the tool answer with less.",
    "upstream_protocol": "Let the tool answer with valid JSON or text. `detail` says what came instead.",
    "tool_error": "Correct the arguments. `upstream` and `upstream_status` have the tool's own words.",
    "input_required": "Call the tool over MCP (/mcp, revision 2026-07-28), which can carry its questions.",
    "transport_unsupported": "Serve Streamable HTTP, or put a bridge before the server. It speaks HTTP+SSE (MCP 2024-11-05) alone.",
    "backend_auth_failed": "Check the Secret that the Tool's `auth` names, and `auth.oauth`. `detail` says what failed.",
    "login_required": "Give the Tool or ToolServer a credential in `auth`: the registry logs in to no server.",
    "upstream_error": "Read the log of the tool's own service: it failed.",
}
"""What to do next, by code. A code of `http.problems.CODES` without one fails tests/unit/registry/http/test_problems.py."""
