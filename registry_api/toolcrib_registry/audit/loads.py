"""What a load's records hold: the tools that it gave out and, once each, the bindings that grant them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from toolcrib.audit import chain as audit_chain
from toolcrib.authorizer import Decision
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.audit.folding import Record

BYTES = 63 * 1024
"""Tools and bindings of one load's record; with what else stands there it has 64 KiB at most."""


def shares(found: Sequence[tuple[PublishedTool, Decision]]) -> Iterator[tuple[list[Record], list[Record]]]:
    """The tools and, once each, the bindings that grant them, which the tools name by their place."""
    tools: list[Record] = []
    bindings: list[Record] = []
    places: dict[str, int] = {}
    size = 0
    for tool, decision in found:
        entry: Record = {"tool": tool.tool_id, "digest": tool.digest, "allowed": decision.allowed}
        binding = decision.binding
        by: Record = (
            {}
            if binding is None
            else {"ref": binding.ref, "uid": binding.uid, "generation": binding.generation}
        )
        more = len(audit_chain.canonical(entry)) + len(audit_chain.canonical(by)) + 16
        if tools and size + more > BYTES:
            yield tools, bindings
            tools, bindings, places, size = [], [], {}, 0
        if binding is not None:
            if binding.ref not in places:
                places[binding.ref] = len(bindings)
                bindings.append(by)
                size += len(audit_chain.canonical(by))
            entry["binding"] = places[binding.ref]
        tools.append(entry)
        size += len(audit_chain.canonical(entry)) + 1
    yield tools, bindings
