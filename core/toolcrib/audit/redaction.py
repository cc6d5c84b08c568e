"""Arguments of calls as they may be written down, or shown to the person who confirms a call.

In logs, what looks like a secret is `***`. Three signs, each enough: the schema says so (`writeOnly`, `format: password`), the
key is one that secrets have, the text has the form of a credential. It is help for logs that record arguments in plain, not a
promise: a password under an ordinary key looks like any other text. Who must not have them recorded hashes or omits them
(`audit.arguments`).

For consent (`mask`) less is hidden, since the caller chooses texts and keys: of a text the credential alone, no value for its
key, and never without the number of characters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

HIDDEN = "***"

_KEY = re.compile(
    r"passw(or)?d|passphrase|pwd$|secret|token$|api[-_]?key|access[-_]?key|private[-_]?key|credential|authorization|^auth$|cookie"
    r"|session[-_]?id|^pin$|^otp$|connection[-_]?string|signature$",
    re.IGNORECASE,
)
# every repetition is bounded where several places may begin it: a text of 4 KiB is searched in a millisecond. A match ends
# where the credential ends, without the text around it; what the groups hold may be shown
_FORMS = re.compile(
    r"""
    \beyJ[A-Za-z0-9_-]{8,512}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]+){0,3} # JSON Web Token
  | -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY-----
    (?:(?:\s|\\[nr])*(?:Proc-Type:[ ]4,ENCRYPTED|DEK-Info:[ ][A-Z0-9-]{1,32},[A-F0-9]{1,64}))*
    (?:(?:\s|\\[nr])*[A-Za-z0-9+/=]{16,})?(?:(?:\s|\\[nr])+[A-Za-z0-9+/=]{16,})*
    (?:(?:\s|\\[nr])*[A-Za-z0-9+/=]{1,15}(?=(?:\s|\\[nr])*(?:-----END|\Z)))? # its last line
    (?:(?:\s|\\[nr])*-----END[ ][A-Z ]*PRIVATE[ ]KEY-----)?
  | (?P<scheme>\b(?:bearer|basic)\s{1,8})[A-Za-z0-9+/=._~-]{12,}           # a header's value
  | \b(?:sk|pk|rk)[-_](?:live|test|proj|ant|or)?[-_]?[A-Za-z0-9_-]{16,}
  | \b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,})
  | \bxox[abeoprs]-[A-Za-z0-9-]{10,}
  | \b(?:AKIA|ASIA)[A-Z0-9]{16}\b
  | \bAIza[A-Za-z0-9_-]{30,}
  | \bhv[sb]\.[A-Za-z0-9_-]{20,}
  | (?P<account>\b[a-z][a-z0-9+.-]{1,20}://[^\s/@:]*:)[^\s/@]+(?P<host>@)  # a password in an address
    """,
    re.IGNORECASE | re.VERBOSE,
)
_DEEPEST = 64
_COMBINING = ("allOf", "anyOf", "oneOf")
_ALTERNATIVES = ("if", "then", "else", "not")


def redacted(arguments: Any, schema: Any = None) -> Any:
    """A copy of `arguments` (JSON) in which secrets are `HIDDEN`; `schema` (JSON Schema) is what they are for."""
    return _value(arguments, [schema] if isinstance(schema, dict) else [], schema, 0, None)


def mask(arguments: Any, schema: Any = None) -> tuple[Any, int]:
    """A copy of `arguments` for the person who confirms them, and how many of their characters it does not show."""
    sizes: list[int] = []
    copy = _value(arguments, [schema] if isinstance(schema, dict) else [], schema, 0, sizes)
    return copy, sum(sizes)


def _value(value: Any, schemas: list[dict[str, Any]], root: Any, depth: int, sizes: list[int] | None) -> Any:
    """The copy; `sizes` collects what is hidden from a person, and is None for logs."""
    if depth > _DEEPEST:
        return _hidden(value, sizes)
    found = list(_all(schemas, root))
    if any(s.get("writeOnly") is True or s.get("format") == "password" for s in found):
        return _hidden(value, sizes)
    if isinstance(value, str):
        return _text(value, sizes)
    if isinstance(value, dict):
        return {
            key: HIDDEN
            if sizes is None and _KEY.search(key) and not (isinstance(inner, bool) or inner in (None, ""))
            else _value(inner, list(_of_property(found, key)), root, depth + 1, sizes)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [
            _value(inner, list(_of_item(found, at)), root, depth + 1, sizes) for at, inner in enumerate(value)
        ]
    return value


def _text(value: str, sizes: list[int] | None) -> str:
    if sizes is None:
        return HIDDEN if _FORMS.search(value) else value

    def replace(credential: re.Match[str]) -> str:
        before = credential["scheme"] or credential["account"] or ""
        after = credential["host"] or ""
        whole = credential[0]
        return before + str(_hidden(whole[len(before) : len(whole) - len(after)], sizes)) + after

    return _FORMS.sub(replace, value)


def _hidden(value: Any, sizes: list[int] | None) -> Any:
    if sizes is None:
        return HIDDEN
    size = len(value if isinstance(value, str) else json.dumps(value))
    sizes.append(size)
    return f"{HIDDEN}({size} character{'' if size == 1 else 's'} hidden)" if size else value


def _all(schemas: list[dict[str, Any]], root: Any) -> Iterator[dict[str, Any]]:
    """The schemas with all that they combine or refer to, each once."""
    seen: set[int] = set()
    waiting = list(schemas)
    while waiting:
        schema = waiting.pop()
        if id(schema) in seen:
            continue
        seen.add(id(schema))
        yield schema
        for word in _COMBINING:
            inner = schema.get(word)
            waiting += [s for s in inner if isinstance(s, dict)] if isinstance(inner, list) else []
        for word in _ALTERNATIVES:
            if isinstance(inner := schema.get(word), dict):
                waiting.append(inner)
        if isinstance(target := _target(schema.get("$ref"), root), dict):
            waiting.append(target)


def _target(reference: Any, root: Any) -> Any:
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    found = root
    for part in filter(None, reference[1:].split("/")):
        name = part.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _of_property(schemas: list[dict[str, Any]], key: str) -> Iterator[dict[str, Any]]:
    for schema in schemas:
        properties = schema.get("properties")
        known = properties.get(key) if isinstance(properties, dict) else None
        for each in (known, *_matching(schema.get("patternProperties"), key)):
            if isinstance(each, dict):
                yield each
        if known is None and isinstance(more := schema.get("additionalProperties"), dict):
            yield more


def _matching(patterns: Any, key: str) -> Iterator[Any]:
    # a pattern is the tool author's: it is not run here, so what it names counts for every key
    if isinstance(patterns, dict):
        yield from patterns.values()


def _of_item(schemas: list[dict[str, Any]], at: int) -> Iterator[dict[str, Any]]:
    for schema in schemas:
        first = schema.get("prefixItems")
        each = first[at] if isinstance(first, list) and at < len(first) else schema.get("items")
        if isinstance(each, dict):
            yield each
