"""From a definition in a server's list to the Tool that holds it, or to the reason why none can."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from toolcrib import digest, names
from toolcrib.errors import InvalidManifest, SchemaUnsafe
from toolcrib.resources.backends import MCP_NAME
from toolcrib.resources.kinds import parse
from toolcrib.resources.meta import API_VERSION
from toolcrib.resources.servers import Override, ToolServer
from toolcrib.resources.tools import Approval, Tool, ToolSpec
from toolcrib.schemas import header_marks, safety
from toolcrib.text import truncate
from toolcrib.wire.imports import ListedTool

SOURCE = "import"
"""Value of the label `toolcrib.dev/source`."""
_OWNED = frozenset({
    "name", "server", "title", "description", "scopes", "tags", "input_schema", "output_schema", "annotations", "approval",
    "backend", "source_digests",
})  # fmt: skip
"""Fields of a Tool that an import writes; the others are left to people."""
_FOREIGN = re.compile(r"[^A-Za-z0-9_.-]")
_LONGEST = {"title": 256, "description": 4096}
_MOST_REASON = 300
_NOT_JSON = "its definition has numbers or text that JSON cannot carry."


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A tool of the list that no Tool is written for: its name at the server, and what is wrong with it.

    `passing`: what is in the way may go without a change of the list or the ToolServer.
    """

    tool: str
    reason: str
    passing: bool = False

    def __str__(self) -> str:
        return f"{self.tool[:80]!r}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Imported:
    """The Tool of one definition.

    Attributes:
        server: whose.
        definition: as the server lists it.
        mark: of what the import writes (`mark_of`).
        instructions: what the server says of all its tools.
    """

    server: ToolServer = field(repr=False)
    definition: ListedTool = field(repr=False)
    mark: bytes = field(repr=False)
    instructions: str = field(default="", repr=False)

    @property
    def tool(self) -> str:
        """Its name at the server."""
        return self.definition.name

    @property
    def name(self) -> str:
        """What agents see, unique at the server."""
        return tool_name(self.server.metadata.name, self.tool)

    @property
    def object_name(self) -> str:
        """`metadata.name`."""
        return names.object_name(self.server.metadata.name, self.tool)

    @property
    def manifest(self) -> dict[str, Any]:
        """What is to be applied."""
        return _manifest(self.server, self.definition, self.instructions)


Known = dict[bytes, bytes | LeftOut]
"""What was found of definitions before, by the sha256 of them and of the instructions: valid for one generation of a
ToolServer."""


def imported(
    server: ToolServer, definition: ListedTool, known: Known | None = None, instructions: str = ""
) -> Imported | LeftOut:
    """The Tool that holds a definition, or why none can; `known` is asked first, and told.

    Args:
        server: the ToolServer, with its uid.
        definition: as the server lists it.
        known: what was found before.
        instructions: what the server says of all its tools.
    """
    known = {} if known is None else known
    try:
        said = hashlib.sha256(instructions.encode(errors="replace")).digest()
        key = hashlib.sha256(said + definition.model_dump_json().encode()).digest()
    except ValueError:
        return LeftOut(definition.name, _NOT_JSON)
    if key not in known:
        known[key] = _judged(server, definition, instructions)
    found = known[key]
    return found if isinstance(found, LeftOut) else Imported(server, definition, found, instructions)


def _judged(server: ToolServer, definition: ListedTool, instructions: str) -> bytes | LeftOut:
    """The mark of its Tool, or why there is none."""
    tool = definition.name
    if re.fullmatch(MCP_NAME[1:-1], tool) is None:
        return LeftOut(tool, "its name is empty, longer than 128 characters, or has control characters.")
    try:
        manifest = _manifest(server, definition, instructions)
        problem = _problem(manifest["spec"])
        if problem is not None:
            return LeftOut(tool, problem)
        bare = {k: v for k, v in manifest["metadata"].items() if k != "ownerReferences"}
        parsed = parse({**manifest, "metadata": bare}, strict=True)
        assert isinstance(parsed, Tool)
        return mark_of(parsed.spec)
    except InvalidManifest as error:
        return LeftOut(tool, truncate(str(error), _MOST_REASON))
    except (ValueError, RecursionError):
        return LeftOut(tool, _NOT_JSON)


def tool_name(server: str, tool: str) -> str:
    """The name under which a tool of a server is listed: its own, where a Tool may have it.

    Else its characters that a name may have, and 6 hex digits of sha256(server:tool).
    """
    if re.fullmatch(names.TOOL_NAME[1:-1], tool) is not None and tool not in names.RESERVED_TOOL_NAMES:
        return tool
    code = hashlib.sha256(f"{server}:{tool}".encode()).hexdigest()[:6]
    return f"{_FOREIGN.sub('_', tool)[:121]}_{code}"


def mark_of(spec: ToolSpec) -> bytes:
    """A fingerprint of what an import writes of a Tool: equal where nothing of it differs.

    Raises:
        ValueError: a schema holds numbers or text that JSON cannot carry.
    """
    written = spec.model_dump(mode="json", by_alias=True, include=set(_OWNED), exclude_none=True)
    for unordered in ("scopes", "tags"):
        written[unordered] = sorted(written[unordered])
    return hashlib.sha256(digest.canonical(written)).digest()[:16]


def instructions_digest(instructions: str) -> str | None:
    """As `sourceDigests` of a Tool has it; None where the server says nothing, or what JSON cannot carry."""
    try:
        return digest.sha256(instructions) if instructions else None
    except ValueError:
        return None


def _source_digests(definition: ListedTool, instructions: str) -> dict[str, str]:
    """What the server says and no Tool holds; ValueError where JSON cannot carry it."""
    said = {
        "annotations": definition.annotations,
        "icons": None if definition.icons is None else list(definition.icons),
        "meta": definition.meta,
        "instructions": instructions,
    }
    return {key: digest.sha256(value) for key, value in said.items() if value}


def _manifest(server: ToolServer, definition: ListedTool, instructions: str) -> dict[str, Any]:
    spec, meta, tool = server.spec, server.metadata, definition.name
    own = next((o for o in spec.overrides if o.tool == tool), Override(tool=tool))
    hints = None if own.annotations is None else own.annotations.model_dump(by_alias=True, exclude_none=True)
    sent = (definition.annotations or {}).get("title")
    title = definition.title or (sent if isinstance(sent, str) else None)
    fields: dict[str, Any] = {
        "name": tool_name(meta.name, tool),
        "server": meta.name,
        "title": title if own.title is None else own.title,
        "description": (definition.description if own.description is None else own.description) or None,
        "scopes": list(spec.defaults.scopes if own.scopes is None else own.scopes),
        "tags": list(spec.defaults.tags if own.tags is None else own.tags),
        "inputSchema": definition.input_schema,
        "outputSchema": definition.output_schema,
        "annotations": hints or None,
        "approval": spec.approval.value,
        # an import that needs no approval would write and index all tools again for nothing
        "sourceDigests": (_source_digests(definition, instructions) or None)
        if spec.approval is Approval.MANUAL
        else None,
        "backend": {"mcp": {"serverRef": {"name": meta.name}, "tool": tool}},
    }
    owner = {
        "apiVersion": API_VERSION,
        "kind": "ToolServer",
        "name": meta.name,
        "uid": meta.uid,
        "controller": True,
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "Tool",
        "metadata": {
            "name": names.object_name(meta.name, tool),
            "namespace": meta.namespace or "default",
            "labels": {"toolcrib.dev/source": SOURCE},
            "ownerReferences": [owner],
        },
        "spec": {k: v for k, v in fields.items() if v is not None and v != []},
    }


def _problem(spec: Mapping[str, Any]) -> str | None:
    """What is wrong with a definition, where there is more to say than which field."""
    for name, most in _LONGEST.items():
        text = spec.get(name)
        if isinstance(text, str) and len(text) > most:
            return f"its {name} has {len(text):,} characters; a Tool holds {most:,}. Set a shorter one in spec.overrides."
    for name in ("inputSchema", "outputSchema"):
        if name not in spec:
            continue
        try:
            safety.check(spec[name], arguments=name == "inputSchema")
        except SchemaUnsafe as error:
            return truncate(f"its {name} cannot be used: {error}", _MOST_REASON)
    if header_marks.marks(spec["inputSchema"]) is None:
        return f"a mark {header_marks.MARK} in its inputSchema is not as MCP has it."
    return None
