"""What to do when Helm refuses a value: the words for each pattern of values.schema.json, a section of the chart's README.

Helm writes its own text for a schema, a bare regular expression where a value has another form. These are the words.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SCHEMA = Path(__file__).parent / "toolcrib" / "values.schema.json"
NAME = (
    "lower-case letters, digits and `-`, at most 63 characters, beginning and ending with a letter or digit"
)
URL = "empty, or a URL: `https://` or `http://` and a host"
ORIGIN = "scheme, host and port alone: `https://toolcrib.example.com`, without a path or final slash"
FORMS: dict[str, str] = {
    r"^$|^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$": "a lower-case letter, then lower-case letters, digits and `-`, at most 40 characters",
    r"^(\s*|[\s\S]*-----BEGIN CERTIFICATE-----[\s\S]*)$": "PEM certificates (`--set-file`)",
    r"^[0-9]{1,12}(k|M|G|T|Ki|Mi|Gi|Ti)?$": "bytes, or a number with a unit: `500k`, `64Mi`, `1Gi`",
    r"^[^/:\s]*$": "a host name alone, without scheme, port and path",
    r"^(https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?)?$": ORIGIN,
    r"^https?://[^/\s]+$": ORIGIN,
    r"^(https?://.+)?$": URL,
    r"^(https?://[!-~]+)?$": URL + ", in printable ASCII characters",
    r"^[!#-\[\]-~]+$": "a scope: printable ASCII characters without spaces, quotes and backslashes",
    r"^(/.+)?$": "an absolute path: `/models/minilm`",
    r"^/": "a path that begins with `/`",
    r"^(rediss?://[^@/?#\s]+(/[0-9]*)?)?$": "`redis://HOST:PORT/DB` or `rediss://HOST:PORT/DB`; the password goes into `passwordSecret`",
    r"^[A-Z][A-Za-z0-9_]*$": "an upper-case letter, then letters, digits and `_`",
    r"^[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?$": "lower-case letters, digits and `-`, at most 32 characters",
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$": "empty, or " + NAME,
    r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$": NAME,
    r"^([*]|[a-z0-9]([-a-z0-9]*[a-z0-9])?)$": '`"*"`, or ' + NAME,
    r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$": "empty, or a name of lower-case letters, digits, `-` and `.`",
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$": NAME,
    r"^[^/\s]+$": "a host name, without scheme and path",
    r"^(sha256:[0-9a-f]{64})?$": "`sha256:` and 64 hexadecimal digits, or empty",
    r"^[0-9.]+([EPTGMk]i?|m)?$": "a quantity of Kubernetes: `500m`, `1`, `512Mi`",
    r"^[0-9a-fA-F:.]+/[0-9]{1,3}$": "a network: `10.0.0.0/16`",
    r"^[0-9]{1,3}%$": "a number of pods, or a share in quotes: `50%`",
    r"^([0-9]+(ms|s|m|h))+$": "a duration: `500ms`, `30s`, `5m`, `1h30m`",
}


def places() -> dict[str, list[str]]:
    """Each pattern of the schema with the values that it is about, as dotted paths; entries of lists as `path[]`."""
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    found: dict[str, list[str]] = {}
    for pattern, path in _walk(schema, schema, ""):
        if path not in found.setdefault(pattern, []):
            found[pattern].append(path)
    return found


def _walk(schema: Any, node: Any, path: str) -> Iterator[tuple[str, str]]:
    while "$ref" in node:
        if node["$ref"] == "#/definitions/value":
            return  # of Kubernetes or the registry, at any depth: it has no pattern
        node = schema["definitions"][node["$ref"].rpartition("/")[2]]
    if pattern := node.get("pattern"):
        yield pattern, path
    for key, below in node.get("properties", {}).items():
        yield from _walk(schema, below, f"{path}.{key}" if path else key)
    if isinstance(items := node.get("items"), dict):
        yield from _walk(schema, items, f"{path}[]")
    for below in (*node.get("anyOf", ()), *node.get("oneOf", ())):
        yield from _walk(schema, below, path)
    if isinstance(others := node.get("additionalProperties"), dict):
        yield from _walk(schema, others, f"{path}.*")


def section() -> str:
    """The section of the README. Raises SystemExit where a pattern has no words, or words no pattern."""
    there = places()
    if odd := sorted(there.keys() ^ FORMS.keys()):
        raise SystemExit(f"helm/refusals.py: FORMS and values.schema.json differ: {', '.join(odd)}")
    rows = ["| Helm says | what to do |", "|---|---|"]
    rows += [
        "| `additional properties 'x' not allowed` | There is no value `x` at that place: look for its name in the tables above |",
        "| `missing property 'x'` | `x` is null, which takes its default away: leave it out to have the default, or write a value |",
        "| `got null, want string` (or another type) | Leave it out, or write a value. In maps only users and groups of a pod may be null |",
        "| `got string, want integer` (or another type) | Write a value of that type; with `--set-string` everything is text |",
        "| `value must be one of …` | Take one of those listed |",
        "| `does not match pattern …` | Write the value as the table below says |",
        "| `These values contradict each other` | Each line says what to set |",
    ]
    forms: dict[str, list[str]] = {}
    for pattern, paths in there.items():
        forms.setdefault(FORMS[pattern], []).extend(paths)
    rows += ["", "| write | as |", "|---|---|"]
    rows += [f"| {', '.join(f'`{p}`' for p in paths)} | {words} |" for words, paths in forms.items()]
    return (
        "\n## If a value is refused\n\nHelm names the place: `at '/registry/publicUrl'` is the value"
        " `registry.publicUrl`. Nothing has been installed or changed.\n\n" + "\n".join(rows) + "\n"
    )
