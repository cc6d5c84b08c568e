"""From the notes on a parameter, as people wrote them, to a JSON schema.

The data says `(string) The path`, `(Optional, array of strings) ...`, `(number, default: 10) ...`, `string, The
name`. What is understood becomes schema; what is not stays in the description, so that nothing is lost.
"""

import re
from typing import Any

_WORDS = {
    "string": ("str", "string", "text"),
    "number": ("double", "float", "number"),
    "integer": ("int", "integer"),
    "boolean": ("bool", "boolean", "flag"),
    "array": ("array", "list"),
    "object": ("dict", "dictionary", "json", "json object", "object"),
    "null": ("none", "null"),
}
_TYPES = {word: name for name, words in _WORDS.items() for word in words}
_PLURALS = {f"{word}s": name for word, name in _TYPES.items()}

# A leading group in parentheses, with at most one level of parentheses inside.
_NOTE = re.compile(r"^\s*\(((?:[^()]|\([^()]*\))*)\)\s*(.*)$", re.DOTALL)
_BARE = re.compile(r"^\s*(string|number|integer|boolean)\s*(?:,|--)\s*(.*)$", re.DOTALL)
_NEED = re.compile(r"^(optional|required)\b[\s:]*(.*)$", re.IGNORECASE | re.DOTALL)
_DEFAULT = re.compile(r"^default\s*:?\s*(\S+)$", re.IGNORECASE)
_ARRAY = re.compile(r"^(?:array|list) of (\w+)$|^(?:array|list)\[(\w+)\]$|^(\w+)\[\]$", re.IGNORECASE)
_OBJECT = re.compile(r"^(?:dict|map|record)\[.*\]$", re.IGNORECASE)
_CHOICES = re.compile(r"""^(?:enum:\s*(?:'?[\w-]+'?)|"[\w-]+")(?:\s*\|\s*(?:'?[\w-]+'?|"[\w-]+"))+$""")


def schema_of(note: str) -> tuple[dict[str, Any], bool]:
    """The JSON schema of a parameter and whether the note says that it is required."""
    schema: dict[str, Any] = {}
    required = False
    note = _clean(note)
    if bare := _BARE.match(note):
        return {"type": bare[1], "description": bare[2]}, False
    found = _NOTE.match(note)
    spec, text = (found[1], found[2].lstrip(": ")) if found else ("", note)
    unread: list[str] = []
    written = ""
    for part in _parts(spec):
        rest = part
        if need := _NEED.match(part):
            required, rest = required or need[1].lower() == "required", need[2].strip()
        if not rest:
            continue
        if default := _DEFAULT.match(rest):
            schema["default"], written = _literal(default[1]), rest
        elif (understood := _type_of(rest)) and "type" not in schema:
            schema.update(understood)
        else:
            unread.append(rest)
    if not _fits(schema):
        del schema["default"]
        unread.append(written)
    if unread:
        text = f"({', '.join(unread)}) {text}".strip()
    if text:
        schema["description"] = text
    return schema, required


def _clean(text: str) -> str:
    """Without control characters; anything of that kind becomes one space."""
    return re.sub(r"[\x00-\x20\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]+", " ", text).strip()


def _parts(spec: str) -> list[str]:
    """Split at commas and semicolons that are not within brackets or quotes."""
    return [part.strip() for part in re.findall(r"""(?:\[[^\]]*\]|"[^"]*"|[^,;])+""", spec) if part.strip()]


def _type_of(text: str) -> dict[str, Any] | None:
    """The schema of a type as written, or None if any of it is unknown."""
    if _CHOICES.match(text):
        choices = [choice.strip(" '\"") for choice in text.removeprefix("enum:").split("|")]
        return {"type": "string", "enum": choices}
    inner = re.fullmatch(r"\[((?:'\w+'(?:,\s*)?)+)\]", text)
    alternatives = re.findall(r"\w+", inner[1]) if inner else re.split(r"\s*\|\s*|\s+or\s+", text)
    schemas = [_single(alternative) for alternative in alternatives]
    known = [schema for schema in schemas if schema is not None]
    if len(known) != len(schemas):
        return None
    if len(known) == 1:
        return known[0]
    types = list(dict.fromkeys(schema["type"] for schema in known))
    merged = {key: value for schema in known for key, value in schema.items()}
    return merged | {"type": types if len(types) > 1 else types[0]}


def _single(text: str) -> dict[str, Any] | None:
    word = text.strip().lower()
    if word in _TYPES:
        return {"type": _TYPES[word]}
    if word == "2d array":
        return {"type": "array", "items": {"type": "array"}}
    if _OBJECT.match(word):
        return {"type": "object"}
    if array := _ARRAY.match(word):
        item = next(group for group in array.groups() if group)
        kind = _TYPES.get(item) or _PLURALS.get(item)
        return {"type": "array", "items": {"type": kind}} if kind else {"type": "array"}
    return None


def _literal(text: str) -> str | int | float | bool:
    lowered = text.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    if re.fullmatch(r"-?\d{1,15}", text):
        return int(text)
    if re.fullmatch(r"-?\d{1,15}\.\d{1,15}", text):
        return float(text)
    return text.strip("'\"")


def _fits(schema: dict[str, Any]) -> bool:
    """Whether the default, if any, is a value of the type, if any."""
    if "default" not in schema or "type" not in schema:
        return True
    value = schema["default"]
    match schema["type"]:
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case _:
            return False
