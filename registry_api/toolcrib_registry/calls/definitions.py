"""Definitions of many tools at one time: what names mean to a caller, decided and recorded one by one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from toolcrib.authorizer import Action
from toolcrib.view import AmbiguousName
from toolcrib.wire.api import LoadError, McpTool
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.calls import lookup
from toolcrib_registry.calls.lookup import Named, Parts
from toolcrib_registry.clock import whole_milliseconds
from toolcrib_registry.identity.authenticator import Asker
from toolcrib_registry.policy.state import CallerView


@dataclass(frozen=True, slots=True)
class Loaded:
    """What names turned out to mean, and those that mean nothing to the caller."""

    named: dict[str, Named]
    errors: tuple[LoadError, ...]

    @property
    def tools(self) -> list[PublishedTool]:
        """The tools, each once."""
        return list({n.tool.tool_id: n.tool for n in self.named.values()}.values())

    def definitions(self) -> Iterable[McpTool]:
        """Their definitions, each once."""
        for n in {n.tool.tool_id: n for n in self.named.values()}.values():
            yield McpTool.of(n.tool, n.listed, n.caller_view.view.model_name(n.tool.tool_id))

    def record(self, parts: Parts) -> None:
        """Write down that the caller gets them."""
        each = {n.tool.tool_id: n for n in self.named.values()}
        # as a rule one snapshot decided about all
        for _, several in groupby(each.values(), key=lambda n: id(n.caller_view.snapshot)):
            found = list(several)
            parts.decisions.loaded(found[-1].caller_view, [(n.tool, n.decision) for n in found], found[-1].at)


async def load(parts: Parts, asker: Asker, names: Iterable[str], within: CallerView) -> Loaded:
    """What each of `names` means to the caller, as far as `within` has it."""
    at = whole_milliseconds(parts.clock.now())
    found: dict[str, Named] = {}
    errors: list[LoadError] = []
    for name in dict.fromkeys(names):
        try:
            named = await lookup.find(parts, asker, name, Action.LOAD, at)
        except AmbiguousName as error:
            several = lookup.ambiguous(error)
            errors.append(
                LoadError(tool=name, code=several.code, detail=several.detail, tool_ids=error.tool_ids)
            )
            continue
        if named is None or named.tool.tool_id not in within.view.tools:
            missing = lookup.not_found(name)
            errors.append(LoadError(tool=name, code=missing.code, detail=missing.detail))
            continue
        found[name] = named
    return Loaded(found, tuple(errors))
