"""What becomes of a request: a result, or how the edge gets one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from toolcrib_registry.calls.lookup import Named
from toolcrib_registry.policy.state import CallerView
from toolcrib_registry.upstream.lists import Kind


@dataclass(frozen=True, slots=True)
class Plain:
    """A result, encoded. `about` are the tools, by listed name or id, of which it tells: the caller has to see them."""

    result: bytes = field(repr=False)
    about: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Called:
    """What a call came to. It may be sent for as long as the call is granted."""

    result: bytes = field(repr=False)
    named: Named


@dataclass(frozen=True, slots=True)
class Shown:
    """A result made of one view. `record` writes down that a caller gets it, before the first byte is sent."""

    result: bytes = field(repr=False)
    record: Callable[[CallerView], None]


@dataclass(frozen=True, slots=True)
class OfView:
    """A result that may be sent only while the view that it is made of is the caller's."""

    make: Callable[[CallerView], Awaitable[Shown]]


@dataclass(frozen=True, slots=True)
class Listening:
    """No result yet: notices of changes until the stream ends.

    Attributes:
        wanted: of which lists the client asked to be told.
        uris: of which resources.
    """

    wanted: frozenset[Kind]
    uris: tuple[str, ...] = ()


Outcome = Plain | Called | OfView | Listening
