"""Pages about custom resources, their conditions, and decisions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from reference_pages.markdown import code, table

from toolcrib import authorizer
from toolcrib.lint import suspicions
from toolcrib.lint import weaknesses as lint
from toolcrib.resources import conditions, crd
from toolcrib.resources.kinds import KINDS

EXAMPLES = Path(__file__).parents[2] / "examples" / "resources"
CONDITIONS = (
    ("Ready", "all three", "Everything that was asked for is in effect. It sums the others up."),
    ("Accepted", "all three", "The object is valid and used."),
    ("Indexed", "Tool", "The definition was read back from the search index."),
    (
        "BackendReachable",
        "Tool with a backend",
        "The Service has a ready endpoint, or the registry could connect. It changes neither Ready nor any list.",
    ),
    (
        "FallbackUsable",
        "Tool with `fallback`",
        "Each fallback exists, is in use, is idempotent, has the same scopes and no wider effects by its hints, and does not "
        "lead back. It changes neither Ready nor any list.",
    ),
    ("Propagated", "bindings", "Every registry replica has confirmed this generation."),
    ("Expired", "bindings", "`expiresAt` has passed."),
    ("MatchesNothing", "bindings", "No tool is within the binding's reach."),
    (
        "DenyWeakened",
        "bindings that deny",
        "A deny stopped matching what it matched since the last edit of the binding. The message names the tools and entries.",
    ),
    (
        "Questionable",
        "all three",
        "Something looks like a mistake; the message lists everything odd. It changes nothing about the grant, or about"
        " who sees the tool.",
    ),
)


def conditions_page() -> str:
    """Condition types and their reasons."""
    text = "# Conditions and their reasons\n\nEvery condition carries `observedGeneration`: compare it with `metadata.generation`.\n"
    text += "`kubectl wait --for=condition=Ready tools.toolcrib.dev/NAME` waits for one.\n\n"
    text += table(("condition", "of", "True means"), [(code(c), k, m) for c, k, m in CONDITIONS])
    text += "\n## Reasons\n\n"
    hinted = {*lint.HINTS, *suspicions.HINTS}
    rows = [
        (code(r.value), m, conditions.NEXT_STEPS.get(r, ""))
        for r, m in conditions.MEANINGS.items()
        if r not in hinted
    ]
    text += table(("reason", "meaning", "what to do"), rows)
    text += "\n## Tools that search finds badly\n\nReasons of `Questionable`, which `toolcrib validate --strict` finds too "
    text += "([be found](../guides/tool-authors.md#be-found)):\n\n"
    rows = [(code(r.value), conditions.MEANINGS[r], hint) for r, hint in lint.HINTS.items()]
    text += table(("reason", "finds", "remedy"), rows)
    text += "\n## Tools that a model should not read\n\nReasons of `Questionable` that the scanner of definitions gives "
    text += "([review a definition](../guides/approve-a-change.md#warnings)):\n\n"
    rows = [(code(r.value), conditions.MEANINGS[r], hint) for r, hint in suspicions.HINTS.items()]
    return text + table(("reason", "finds", "remedy"), rows)


def decisions_page() -> str:
    """Reasons of the authorizer."""
    text = "# Reasons of decisions\n\nThe decision log says them; callers never learn them. `toolcrib_decisions_total{reason}` does, but for\n"
    text += "tools that the caller does not see: those have `not_permitted`, unless `metrics.reasons` is `full`.\n"
    text += "[Authorization](../concepts/authorization.md) gives the order in which they are found.\n\n"
    refusing = [r for r in authorizer.Reason if r.step is not None]
    allowing = [r for r in authorizer.Reason if r.step is None]
    rows = [(str(r.step), code(r.value), r.meaning) for r in refusing]
    rows += [("allowed", code(r.value), r.meaning) for r in allowing]
    return text + table(("step", "reason", "meaning"), rows)


def resources_page() -> str:
    """Every field of every kind, and the rules that hold between them."""
    text = "# Custom resources\n\n`kubectl explain` shows the same. Group `toolcrib.dev`, version `v1alpha1`, category `toolcrib`.\n"
    for kind in KINDS.values():
        schema = crd.schema(kind)
        text += f"\n## {kind.kind}\n\n`{kind.plural}.toolcrib.dev`, short name `{kind.short}`, "
        text += "namespaced.\n\n" if kind.namespaced else "cluster-scoped.\n\n"
        text += _example(kind.kind)
        for part in ("spec", "status"):
            text += table(("field", "type", "what"), _fields(schema["properties"][part], part)) + "\n"
        text += "Rules:\n\n" + "".join(f"* `{path}`: {m}\n" for path, m in _rules(schema, ""))
    return text


def _example(kind: str) -> str:
    """The commented example of a kind: a file of examples/resources, as the page shows it."""
    name = f"{kind.lower()}.yaml"
    text = (EXAMPLES / name).read_text(encoding="utf-8").rstrip()
    return f"A whole example ([file](../../examples/resources/{name})):\n\n```yaml\n{text}\n```\n\n"


def _fields(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, str, str]]:
    required = set(schema.get("required", ()))
    for name, field in schema.get("properties", {}).items():
        at = f"{path}.{name}"
        item = field.get("items", {})
        kind = str(field.get("type", "any"))
        notes = [str(field.get("description", ""))]
        if kind == "array":
            kind = f"list of {item.get('type', 'object')}"
            notes.append(f"{field.get('minItems', 0)} to {field['maxItems']} entries.")
        if name in required:
            notes.append("**Required.**")
        if "enum" in field:
            notes.append("One of " + ", ".join(code(v) for v in field["enum"]) + ".")
        if "default" in field and isinstance(field["default"], str | int | bool):
            notes.append(f"Default `{field['default']}`.")
        yield code(at), kind, " ".join(n for n in notes if n)
        if name != "conditions":
            yield from _fields(field, at)
            yield from _fields(item, f"{at}[]")


def _rules(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    for rule in schema.get("x-kubernetes-validations", ()):
        yield path or "(object)", rule["message"]
    for name, field in schema.get("properties", {}).items():
        if name != "status":
            at = f"{path}.{name}" if path else name
            yield from _rules(field, at)
            yield from _rules(field.get("items", {}), f"{at}[]")
