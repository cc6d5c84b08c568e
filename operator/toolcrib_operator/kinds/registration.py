"""What the operator makes of a runtime registration. The registry is not believed: everything is checked again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from toolcrib import names, publishing
from toolcrib.errors import InvalidManifest, SchemaUnsafe
from toolcrib.lint import hidden_text
from toolcrib.resources import parse
from toolcrib.resources.tools import Tool
from toolcrib.schemas import safety as schema_safety
from toolcrib.wire.publish import PublishedTool
from toolcrib_operator.kinds.tool import name_key
from toolcrib_operator.objects import Entry


def manifest_of(asked: PublishedTool, namespace: str) -> dict[str, Any]:
    """The Tool that `asked` becomes, in `namespace` and nowhere else.

    Raises:
        ValueError: it is none that may be registered; the message is for its caller.
    """
    if asked.tool_id != names.tool_id(namespace, names.object_name(asked.server, asked.name)):
        raise ValueError("the tool belongs to another namespace, or its id does not match its name")
    backend = asked.backend
    if backend is not None and (backend.url is None or backend.auth is not None):
        raise ValueError("backend: must be a URL without credentials")
    manifest = publishing.manifest(asked)
    try:
        parse(manifest, strict=True)
        schema_safety.check(asked.input_schema)
        if asked.output_schema is not None:
            schema_safety.check(asked.output_schema, arguments=False)
    except (InvalidManifest, SchemaUnsafe) as error:
        raise ValueError(str(error)) from error
    if found := list(hidden_text.places(asked)):
        raise ValueError(hidden_text.message(found))
    return manifest


def is_taken(asked: PublishedTool, tools: Iterable[Entry]) -> bool:
    """Whether an object has the name already, among tools of its namespace and server or as an object."""
    key = (asked.namespace, asked.server or "", asked.name)
    for entry in tools:
        if entry.deleting is not None:
            continue
        if entry.ref.key == asked.tool_id:
            return True
        if isinstance(entry.head, Tool) and name_key(entry.head) == key:
            return True
    return False
