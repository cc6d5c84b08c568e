"""What one binding says of a tool: whether it reaches it, allows its name, denies it, and holds now."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from toolcrib.names import ToolPattern
from toolcrib.wire.publish import PublishedBinding, PublishedTool


class Denial(NamedTuple):
    """The entry of a binding that denies a tool: `field` is `deny` (a pattern) or `denyScopes` (a scope)."""

    field: str
    entry: str

    def __str__(self) -> str:
        return f"tools.{self.field}: {self.entry}"


@dataclass(frozen=True, slots=True)
class CompiledBinding:
    """A binding with its patterns parsed."""

    source: PublishedBinding
    namespaces: frozenset[str] | None
    scopes: frozenset[str]
    servers: frozenset[tuple[str | None, str]] | None
    allow: tuple[ToolPattern, ...] | None
    deny: tuple[ToolPattern, ...]
    deny_scopes: frozenset[str]

    @classmethod
    def of(cls, b: PublishedBinding) -> CompiledBinding:
        servers: frozenset[tuple[str | None, str]] | None = None
        if b.servers is not None:
            pairs = (s.split("/", 1) for s in b.servers)
            servers = frozenset((p[0], p[1].lower()) if len(p) == 2 else (None, p[0].lower()) for p in pairs)
        return cls(
            source=b,
            namespaces=None if b.namespaces is None else frozenset(b.namespaces),
            scopes=frozenset(b.scopes),
            servers=servers,
            allow=None if b.allow is None else tuple(map(ToolPattern.parse, b.allow)),
            deny=tuple(map(ToolPattern.parse, b.deny)),
            deny_scopes=frozenset(b.deny_scopes),
        )

    def in_namespaces(self, tool: PublishedTool) -> bool:
        return self.namespaces is None or tool.namespace in self.namespaces

    def in_servers(self, tool: PublishedTool) -> bool:
        if self.servers is None:
            return True
        if tool.server is None:
            return False
        server = tool.server.lower()
        return (None, server) in self.servers or (tool.namespace, server) in self.servers

    def valid(self, now: float) -> bool:
        b = self.source
        return (b.not_before is None or b.not_before <= now) and (b.expires_at is None or now < b.expires_at)

    def allows(self, tool: PublishedTool) -> bool:
        return self.allow is None or _any_matches(self.allow, tool)

    def denies(self, tool: PublishedTool) -> bool:
        """Whatever its dates, and not narrowed by `servers`."""
        if not (self.deny or self.deny_scopes) or not self.in_namespaces(tool):
            return False
        return not self.deny_scopes.isdisjoint(tool.scopes) or _any_matches(self.deny, tool)

    def denial(self, tool: PublishedTool) -> Denial | None:
        """The first entry that denies the tool; patterns before scopes."""
        return next(self.denials(tool), None)

    def denials(self, tool: PublishedTool) -> Iterator[Denial]:
        """Every entry that denies the tool; patterns before scopes."""
        if not self.in_namespaces(tool):
            return
        for text, pattern in zip(self.source.deny, self.deny, strict=True):
            if _any_matches((pattern,), tool):
                yield Denial("deny", text)
        for scope in self.source.deny_scopes:
            if scope in tool.scopes:
                yield Denial("denyScopes", scope)

    def order(self) -> tuple[bool, str, str]:
        return (self.source.namespace is not None, self.source.namespace or "", self.source.name)


def _any_matches(patterns: Iterable[ToolPattern], tool: PublishedTool) -> bool:
    return any(p.matches(namespace=tool.namespace, server=tool.server, name=tool.name) for p in patterns)


def matcher(binding: PublishedBinding) -> Callable[[PublishedTool], bool]:
    """Whether an active tool is within a binding's reach, for any caller and at any date.

    What `matchedTools` counts: tools the binding grants a scope of, or those it denies where it only denies.
    """
    b, grants = CompiledBinding.of(binding), granting(binding)

    def reaches(tool: PublishedTool) -> bool:
        if not tool.active or not b.in_namespaces(tool):
            return False
        if not b.scopes:
            return b.denies(tool)
        return grants(tool) and not b.denies(tool)

    return reaches


def granting(binding: PublishedBinding) -> Callable[[PublishedTool], bool]:
    """Whether a binding, by itself and at any date, grants a scope of a tool; denials are not looked at."""
    b = CompiledBinding.of(binding)

    def grants(tool: PublishedTool) -> bool:
        if not b.in_namespaces(tool) or not b.in_servers(tool):
            return False
        return bool(b.scopes.intersection(tool.scopes)) and b.allows(tool)

    return grants


def denials(binding: PublishedBinding) -> Callable[[PublishedTool], Iterator[Denial]]:
    """Every entry of the binding that denies a tool within its reach, whatever the tool's state."""
    return CompiledBinding.of(binding).denials
