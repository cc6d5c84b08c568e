"""Which scopes a token lacks for a call that a binding of its caller grants. Asked only where `discovery.step_up` is on.

The tool is looked for among those that the caller's bindings grant: what they do not grant or deny stays absent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Protocol

from toolcrib.authorizer import Action, Decision, Reason, decide
from toolcrib.identity import ScopesPolicy
from toolcrib.resources.tools import ScopeMatch
from toolcrib.view import AmbiguousName
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.clock import Clock
from toolcrib_registry.failures import Failure
from toolcrib_registry.identity.authenticator import Asker
from toolcrib_registry.policy.state import CallerView, PolicyState


class Parts(Protocol):
    """What is needed of the registry (`deps.Deps` has it)."""

    @property
    def state(self) -> PolicyState: ...

    @property
    def clock(self) -> Clock: ...


class InsufficientScope(Failure):
    """A token with all of `scopes` would be let in."""

    def __init__(self, scopes: tuple[str, ...]) -> None:
        super().__init__(
            "insufficient_scope",
            "The token lacks a scope of this tool. Request a token with the scopes in WWW-Authenticate.",
        )
        self.scopes = scopes


Find = Callable[[CallerView], Awaitable[PublishedTool | None]]
"""Finds the tool that a caller named in a view."""


def named(name: str) -> Find:
    """By listed name, tool id or server:tool."""

    async def find(caller_view: CallerView) -> PublishedTool | None:
        try:
            return caller_view.view.resolve(name)
        except AmbiguousName:
            return None

    return find


async def check(parts: Parts, asker: Asker, find: Find) -> None:
    """Say what is missing, where a scope is all that is.

    Raises:
        InsufficientScope: the call would be let in with its scopes.
    """
    if scopes := await lacking(parts, asker, find):
        raise InsufficientScope(scopes)


async def lacking(parts: Parts, asker: Asker, find: Find) -> tuple[str, ...]:
    """The scopes that a new token needs, with those that let the caller in elsewhere; empty: no scope would help."""
    identity = asker.identity
    if identity is None or identity.policy is not ScopesPolicy.INTERSECTION:
        return ()
    granted = await parts.state.caller_view(replace(identity, policy=ScopesPolicy.BINDINGS, scopes=None))
    tool = await find(granted)
    if tool is None:
        return ()

    def with_scopes(scopes: frozenset[str] | None) -> Decision:
        asking = replace(identity, scopes=scopes)
        return decide(asking, tool, Action.CALL, granted.snapshot.policy, parts.clock.now())

    if with_scopes(identity.scopes).reason is not Reason.TOKEN_LACKS_SCOPE:
        return ()
    ways = [tool.scopes] if tool.scope_match is ScopeMatch.ALL else [(scope,) for scope in tool.scopes]
    for way in ways:
        if with_scopes(frozenset(way)).allowed:
            now = await parts.state.caller_view(identity)
            return tuple(sorted({*way, *now.scopes}))
    return ()
