"""One question to a registry with what the oracle knows of it, and how a difference is told."""

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from oracle import decisions, worlds
from oracle.decisions import Caller, Issuers, Tool, World
from oracle.naming import Names
from oracle.rig import Answer, Rig


class Difference(AssertionError):
    """The registry and the oracle disagree; the message says over what."""


@dataclass
class Question:
    """One case."""

    path: str
    caller: str
    at: float
    argument: Any = None


@dataclass
class Asked:
    """A question with what is known of it: what every path's function is given."""

    rig: Rig
    world: World
    caller: Caller
    at: float
    argument: Any
    issuers: Issuers = field(init=False)
    names: Names = field(init=False)
    identified: bool = field(init=False)

    def __post_init__(self) -> None:
        self.issuers = worlds.issuers(self.rig.kind)
        self.names = Names(self.world, self.caller, self.issuers, self.at)
        self.identified = decisions.who(self.world, self.caller, self.issuers, self.at) is not None

    @property
    def lists(self) -> bool:
        """Whether a caller without an identity may list."""
        return bool(self.caller == "anonymous") and self.world["anonymous"] == "list"

    def tool(self, tool_id: str) -> Tool:
        """The world's tool of that id."""
        return next(t for t in self.world["tools"] if t["id"] == tool_id)

    async def get(self, path: str, query: str = "", **headers: str) -> Answer:
        """GET as the caller."""
        return await self.rig.ask("GET", quote(path, safe="/"), self.caller, query=query, **headers)

    async def post(self, path: str, body: Any) -> Answer:
        """POST as the caller."""
        return await self.rig.ask("POST", quote(path, safe="/"), self.caller, body)

    def refused(self, answer: Answer) -> bool:
        """Whether it must be, and is, a 401."""
        if self.identified:
            return False
        same("status", answer.status, 401)
        return True

    def listing_name(self, tool_id: str, name: str) -> None:
        """The name under which a tool is shown."""
        same(f"the listed name of {tool_id}", name, self.names.listed.get(tool_id))


def same(what: str, found: Any, wanted: Any) -> None:
    """Raises Difference unless they are equal."""
    if found != wanted:
        raise Difference(f"{what}: the registry says {found!r}, the oracle {wanted!r}")
