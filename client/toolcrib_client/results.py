"""What the registry answers, read from JSON. Pure.

Frozen dataclasses instead of models: nothing is installed for them. Fields that a later registry adds are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from toolcrib_client.errors import RegistryAnswerInvalid

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool in full. `name` is what this caller calls it by; `digest` changes with the definition."""

    tool_id: str
    name: str
    namespace: str
    description: str
    input_schema: Json
    scopes: tuple[str, ...]
    state: str
    digest: str
    title: str | None = None
    server: str | None = None
    output_schema: Json | None = None
    returns: str | None = None
    tags: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    annotations: Mapping[str, bool] = field(default_factory=dict)
    replaced_by: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """A search hit.

    Attributes:
        confidence: the probability that the tool fits, 0 to 1; None without words.
        unavailable: its backend is down. Such hits come last.
    """

    tool_id: str
    name: str
    short_desc: str
    server: str | None = None
    confidence: float | None = None
    why: str | None = None
    unavailable: bool = False


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """The hits, best first. `degraded`: words alone decided."""

    hits: tuple[Hit, ...]
    revision: str
    degraded: bool = False


@dataclass(frozen=True, slots=True)
class LoadedTool:
    """A definition for a model: `model_name` is its function's name, the one that `/mcp/direct` has.

    `description` has no control characters but line feeds and tabs.
    """

    name: str
    tool_id: str
    model_name: str
    description: str
    input_schema: Json


@dataclass(frozen=True, slots=True)
class LoadFailure:
    """Why a tool that was asked for is not loaded."""

    tool: str
    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """What `load` found, and what it did not."""

    tools: tuple[LoadedTool, ...]
    failures: tuple[LoadFailure, ...]
    revision: str


@dataclass(frozen=True, slots=True)
class CallResult:
    """What the tool answered.

    Attributes:
        elapsed: seconds at the registry.
        content: MCP's blocks beside structured content.
        fallback_for: the id of the tool that was called, where its backend is down and `tool_id` answered in its place.
    """

    tool_id: str
    content_type: str
    result: Any
    elapsed: float
    content: tuple[Json, ...] = ()
    fallback_for: str | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """An event of `watch`. A `snapshot` has the whole view in `tools`; `removed` has no tool."""

    kind: Literal["snapshot", "added", "changed", "removed"]
    revision: str
    tools: tuple[Tool, ...] = ()
    tool_id: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Rediscovery:
    """What changed since the last list, by listed name, sorted. A `changed` tool is in `unchanged`, too."""

    gained: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything is different."""
        return bool(self.gained or self.lost or self.changed)


def compare(before: Mapping[str, Tool], after: Mapping[str, Tool]) -> Rediscovery:
    """What two views differ in."""
    kept = before.keys() & after.keys()
    return Rediscovery(
        gained=tuple(sorted(after.keys() - kept)),
        lost=tuple(sorted(before.keys() - kept)),
        unchanged=tuple(sorted(kept)),
        changed=tuple(sorted(n for n in kept if before[n].digest != after[n].digest)),
    )


def tool(document: Any) -> Tool:
    """A tool of `/v1/tools`, `/v1/describe` and `/v1/watch`.

    Raises:
        RegistryAnswerInvalid: it is not one; so do the functions below.
    """
    about = _object(document)
    return Tool(
        tool_id=_text(about, "tool_id"),
        name=_text(about, "name"),
        namespace=_text(about, "namespace"),
        description=_text(about, "description"),
        input_schema=_object(about.get("input_schema")),
        scopes=_texts(about, "scopes"),
        state=_text(about, "state"),
        digest=_text(about, "digest"),
        title=_optional(about, "title"),
        server=_optional(about, "server"),
        output_schema=None if about.get("output_schema") is None else _object(about["output_schema"]),
        returns=_optional(about, "returns"),
        tags=_texts(about, "tags"),
        examples=_texts(about, "examples"),
        annotations={k: v for k, v in _object(about.get("annotations", {})).items() if isinstance(v, bool)},
        replaced_by=_optional(about, "replaced_by"),
        message=_optional(about, "message"),
    )


def page(document: Any) -> tuple[tuple[Tool, ...], str | None]:
    """The tools of one page, and the cursor of the next."""
    about = _object(document)
    return tuple(tool(t) for t in _list(about, "tools")), _optional(about, "next_cursor")


def search(document: Any) -> SearchAnswer:
    """The answer of `/v1/search`."""
    about = _object(document)
    hits = tuple(
        Hit(
            tool_id=_text(hit, "tool_id"),
            name=_text(hit, "name"),
            short_desc=_text(hit, "short_desc"),
            server=_optional(hit, "server"),
            confidence=_number(hit["confidence"]) if hit.get("confidence") is not None else None,
            why=_optional(hit, "why"),
            unavailable=hit.get("unavailable") is True,
        )
        for hit in map(_object, _list(about, "tools"))
    )
    return SearchAnswer(hits, _text(about, "revision"), about.get("degraded") is True)


def loaded(document: Any) -> Loaded:
    """The answer of `/v1/load`."""
    about = _object(document)
    tools = []
    for entry in map(_object, _list(about, "tools")):
        meta = _object(entry.get("_meta"))
        tools.append(
            LoadedTool(
                name=_text(entry, "name"),
                tool_id=_text(meta, "toolcrib.dev/tool-id"),
                model_name=_text(meta, "toolcrib.dev/model-name"),
                description=_shown(_text(entry, "description")),
                input_schema=_object(entry.get("inputSchema")),
            )
        )
    failures = tuple(
        LoadFailure(_text(e, "tool"), _text(e, "code"), _text(e, "detail"))
        for e in map(_object, _list(about, "errors"))
    )
    return Loaded(tuple(tools), failures, _text(about, "revision"))


def joined(parts: Sequence[Loaded]) -> Loaded:
    """Batches as one; the revision is the last one's."""
    return Loaded(
        tuple(t for part in parts for t in part.tools),
        tuple(f for part in parts for f in part.failures),
        parts[-1].revision if parts else "",
    )


def call(document: Any) -> CallResult:
    """The answer of `/v1/call`."""
    about = _object(document)
    if "result" not in about:
        raise _invalid()
    return CallResult(
        tool_id=_text(about, "tool_id"),
        content_type=_text(about, "content_type"),
        result=about["result"],
        elapsed=_number(about.get("elapsed")),
        content=tuple(map(_object, about["content"])) if isinstance(about.get("content"), list) else (),
        fallback_for=_optional(about, "fallback_for"),
    )


def change(kind: str, document: Any) -> Change | None:
    """An event of `/v1/watch`; None for one of a later registry."""
    about = _object(document)
    revision = _text(about, "revision")
    if kind == "snapshot":
        return Change("snapshot", revision, tuple(tool(t) for t in _list(about, "tools")))
    if kind in ("added", "changed"):
        one = tool(about.get("tool"))
        which: Literal["added", "changed"] = "added" if kind == "added" else "changed"
        return Change(which, revision, (one,), one.tool_id, one.name)
    if kind == "removed":
        return Change("removed", revision, (), _text(about, "tool_id"), _text(about, "name"))
    return None


def _invalid() -> RegistryAnswerInvalid:
    return RegistryAnswerInvalid(
        "the answer is not what /openapi.json promises: check the URL and the versions"
    )


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _invalid()
    return value


def _list(about: Json, key: str) -> list[Any]:
    value = about.get(key)
    if not isinstance(value, list):
        raise _invalid()
    return value


def _text(about: Json, key: str) -> str:
    value = about.get(key)
    if not isinstance(value, str):
        raise _invalid()
    return value


def _shown(text: str) -> str:
    return "".join(c if c.isprintable() or c in "\n\t" else " " if c.isspace() else "" for c in text)


def _optional(about: Json, key: str) -> str | None:
    return None if about.get(key) is None else _text(about, key)


def _texts(about: Json, key: str) -> tuple[str, ...]:
    value = about.get(key, [])
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise _invalid()
    return tuple(value)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _invalid()
    return float(value)
