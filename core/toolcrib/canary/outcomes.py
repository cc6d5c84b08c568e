"""Which ends of a call say something of a tool's definition.

Only what the definition, its arguments or its tool decide: a call that a limit, a revocation or a stale policy stopped says
nothing of it.
"""

from __future__ import annotations

OK, INVALID = "ok", "invalid_arguments"
FAILED = frozenset({
    INVALID, "arguments_too_complex", "tool_error", "upstream_error", "upstream_protocol", "upstream_too_large",
    "upstream_timeout", "upstream_unreachable",
})  # fmt: skip
