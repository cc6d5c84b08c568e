"""What a replica remembers of sessions of the handshake era: a level of logs, and the resources that are followed.

No request needs it: a replica that knows nothing of a session takes the defaults. The name of a session is the client's
word, so what is remembered belongs to the caller's account as well.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from toolcrib_registry.mcp.following import Followed
from toolcrib_registry.mcp.requests import Client

LEVEL = "info"
"""Of a client that has not said one (2025-11-25, Logging: the server may decide)."""
OF_ONE, ACCOUNTS = 16, 4_096
"""Sessions of one account, and accounts; the latest used stay."""
_FIELD = "mcp-session-id"


@dataclass(slots=True)
class Session:
    """One session."""

    level: str = LEVEL
    followed: Followed = field(default_factory=Followed)


class Sessions:
    """Used from one event loop only."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, OrderedDict[str, Session]] = OrderedDict()

    def level(self, client: Client) -> str:
        """From which level on the client of a request is told what is logged."""
        known = self._found(client)
        return LEVEL if known is None else known.level

    def unfollow(self, client: Client, uri: str) -> None:
        """Tell the client's session no more of a resource."""
        if (known := self._found(client)) is not None:
            known.followed.drop(uri)

    def of(self, client: Client) -> Session:
        """The session of a request, remembered from now on."""
        account, name = client.identity.account, _name(client)
        sessions = self._known.setdefault(account, OrderedDict())
        self._known.move_to_end(account)
        found = sessions.get(name)
        if found is None:
            found = sessions[name] = Session()
        sessions.move_to_end(name)
        if len(sessions) > OF_ONE:
            idle = (each for each, one in sessions.items() if not one.followed.streaming and each != name)
            sessions.pop(next(idle, next(iter(sessions)))).followed.close()
        if len(self._known) > ACCOUNTS:
            for session in self._known.popitem(last=False)[1].values():
                session.followed.close()
        return found

    def _found(self, client: Client) -> Session | None:
        sessions = self._known.get(client.identity.account)
        return None if sessions is None else sessions.get(_name(client))


def _name(client: Client) -> str:
    return (client.fields.get(_FIELD) or "")[:128]
