"""What the registry's error answers mean: problem documents (RFC 9457) turned into the runner's errors. Pure.

The stable `code` decides; where there is none (something between us and the registry answered), the status does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from toolcrib import text
from toolcrib_runner import errors
from toolcrib_runner.errors import RegistryError, ToolError

_OF_TOOLS: Mapping[str, type[ToolError]] = {
    "not_permitted": errors.NotPermitted,
    "tool_not_found": errors.ToolNotFound,
    "not_found": errors.ToolNotFound,
    "ambiguous_name": errors.AmbiguousTool,
    "invalid_arguments": errors.InvalidArguments,
    "arguments_too_complex": errors.InvalidArguments,
    "no_backend": errors.ToolUnavailable,
    "credential_pending": errors.ToolUnavailable,
    "service_pending": errors.ToolUnavailable,
    "egress_refused": errors.ToolUnavailable,
    "tool_error": errors.ToolFailed,
    "upstream_timeout": errors.UpstreamTimeout,
    "limit_exceeded": errors.LimitReached,
}
_OF_REGISTRY: Mapping[str, type[RegistryError]] = {
    "unauthorized": errors.Unauthorized,
    "unauthenticated": errors.Unauthorized,
    "invalid_token": errors.Unauthorized,
    "policy_stale": errors.PolicyStale,
    "limits_unavailable": errors.RegistryUnavailable,
    "audit_unavailable": errors.RegistryUnavailable,
    "not_ready": errors.RegistryUnavailable,
}
_TOOL_BY_STATUS: Mapping[int, type[ToolError]] = {
    400: errors.InvalidArguments,
    403: errors.NotPermitted,
    404: errors.ToolNotFound,
    413: errors.InvalidArguments,
    422: errors.ToolFailed,
    429: errors.LimitReached,
}
MAX_DETAIL = 1024


def of_call(tool: str, status: int, body: bytes, retry_after: str | None) -> ToolError | RegistryError:
    """The error of a call that was answered with anything but success."""
    problem = _problem(body)
    code, wait = problem.get("code"), _seconds(retry_after)
    code = code if isinstance(code, str) else None
    if code in _OF_REGISTRY or (
        code not in _OF_TOOLS and not _is_upstream(code) and _registrys_own(status, code)
    ):
        return of_registry(status, body, retry_after)
    kind = _OF_TOOLS.get(code or "") or (errors.UpstreamFailed if _is_upstream(code) else None)
    kind = kind or _TOOL_BY_STATUS.get(status, errors.ToolError)
    message = f"{tool}: {_detail(problem) or f'the registry answered {status}'}"
    error = kind(tool, message, code=code, status=status, retry_after=wait)
    if isinstance(error, errors.AmbiguousTool):
        error.tool_ids = _strings(problem.get("tool_ids") or problem.get("tools"))
    if isinstance(error, errors.ToolFailed):
        error.answer = problem.get("upstream")
    if isinstance(error, errors.InvalidArguments):
        error.problems = _argument_problems(problem)
        if error.problems:
            error.args = (f"{message} ({'; '.join(error.problems)})",)
    return error


def of_registry(status: int, body: bytes, retry_after: str | None) -> RegistryError:
    """The error of a discovery, watch or call that the registry itself could not or would not serve."""
    problem = _problem(body)
    code = problem.get("code") if isinstance(problem.get("code"), str) else None
    kind = _OF_REGISTRY.get(code or "")
    if kind is None:
        if status in (401, 403):
            kind = errors.Unauthorized
        elif status >= 500 or status in (408, 425, 429):
            kind = errors.RegistryUnavailable
        else:
            kind = errors.RegistryAnswerInvalid
    message = _detail(problem) or f"the registry returned status {status}"
    return kind(message, code=code, status=status, retry_after=_seconds(retry_after))


def _is_upstream(code: str | None) -> bool:
    return code is not None and code.startswith("upstream_")


def _registrys_own(status: int, code: str | None) -> bool:
    return status == 401 or status >= 500 or (code is None and 300 <= status < 400)


def _problem(body: bytes) -> Mapping[str, Any]:
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _detail(problem: Mapping[str, Any]) -> str:
    for field in ("detail", "title"):
        value = problem.get(field)
        if isinstance(value, str) and value:
            return text.truncate(text.escape(value), MAX_DETAIL)
    return ""


def _argument_problems(problem: Mapping[str, Any]) -> tuple[str, ...]:
    found = []
    listed = problem.get("errors")
    for item in listed[:16] if isinstance(listed, list) else ():
        if isinstance(item, dict) and isinstance(item.get("message"), str):
            where = item.get("pointer") if isinstance(item.get("pointer"), str) else ""
            found.append(
                text.truncate(text.escape(f"{where}: {item['message']}" if where else item["message"]), 256)
            )
    return tuple(found)


def _strings(value: Any) -> tuple[str, ...]:
    return tuple(v for v in value if isinstance(v, str)) if isinstance(value, list) else ()


def _seconds(retry_after: str | None) -> float | None:
    """Seconds of a Retry-After header; the date form is not used by the registry and is ignored."""
    if retry_after is None or not retry_after.strip().isdecimal():
        return None
    return min(float(retry_after), 3600.0)
