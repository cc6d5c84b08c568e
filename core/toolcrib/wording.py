"""What is wrong with a value, in words: one of pydantic's errors, without regular expressions and types of Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolcrib import names

_LABEL = "lower-case letters, digits and '-', with a letter or digit at both ends"
_GLOB = "letters, digits and '_', '.', '-', with the wildcards '*' and '?'"
FORMS: Mapping[str, str] = {
    names.TOOL_NAME: "1 to 128 letters, digits, '_', '.' or '-'",
    names.SERVER_NAME: "1 to 63 letters, digits, '_', '.' or '-'",
    names.SCOPE: "a scope, as in calculator:use: letters, digits and '_', '.', ':', '/', '-', with a letter or digit at both ends, "
    "at most 128 characters",
    names.TAG: "1 to 64 characters without control characters",
    names.DNS_LABEL: f"{_LABEL}, at most 63 characters",
    names.DNS_SUBDOMAIN: f"parts joined by '.', each of {_LABEL}",
    names.PATTERN: f"NAME or SERVER:NAME, each of {_GLOB}",
    names.CLUSTER_PATTERN: f"NAME or NAMESPACE/SERVER:NAME, each of {_GLOB}",
    names.CLUSTER_SERVER: "NAMESPACE/SERVER, as in heist/office",
}
"""What a text must be, by the pattern that says so."""
_KINDS = {
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "set_type": "must be a list",
    "frozen_set_type": "must be a list",
    "dict_type": "must be an object",
    "mapping_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "extra_forbidden": "unknown field",
    "missing": "required, but missing",
}


def said(error: Mapping[str, Any], forms: Mapping[str, str] = FORMS) -> str:
    """What an error of pydantic says.

    Args:
        error: one of `ValidationError.errors()`.
        forms: what a text must be, by the pattern that says so.
    """
    kind = error.get("type")
    if kind == "string_pattern_mismatch":
        form = forms.get(str(error.get("ctx", {}).get("pattern")))
        return f"must be {form}" if form else "does not have the documented form"
    return _KINDS.get(str(kind)) or str(error.get("msg", "")).removeprefix("Value error, ")
