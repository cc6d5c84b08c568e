"""`POST /v1/access-requests` and the meta-tool `request_access`: an agent asks people for a tool that it does not have.

A tool that may not be asked for is answered as one that does not exist: the replica does not know which namespaces take
requests, so each request goes the same way and one answer is made for both.
"""

from __future__ import annotations

from typing import Protocol

from toolcrib.authorizer import caller_refused
from toolcrib_registry.calls import lookup
from toolcrib_registry.clock import Clock
from toolcrib_registry.failures import Failure, Unauthenticated
from toolcrib_registry.identity.authenticator import Asker
from toolcrib_registry.policy.access_requests import (
    AccessAbsent,
    AccessAsked,
    AccessDesk,
    AccessFailed,
    AccessFull,
    AccessRefused,
    subject_of,
)
from toolcrib_registry.policy.state import PolicyState


class Parts(Protocol):
    """What asking needs of the registry (`deps.Deps` has it)."""

    @property
    def state(self) -> PolicyState: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def desk(self) -> AccessDesk: ...


async def ask(parts: Parts, asker: Asker, tool_id: str, why: str) -> str:
    """Ask for `tool_id`; returns the `namespace/name` of the request that is open now.

    Raises:
        Failure: it is not open; the code says why.
    """
    identity, state = asker.identity, parts.state
    if identity is None:
        raise Unauthenticated(asker.problem)
    if state.stale:
        raise Failure(
            "policy_stale", "The policy is stale: no operator heartbeat for too long.", retry_after=10
        )
    subject = subject_of(identity)
    if subject is None:
        raise lookup.not_found(tool_id)
    # a suspended agent learns nothing from a shorter way: it asks for what is not there
    refused = caller_refused(identity, state.snapshot.policy, parts.clock.now())
    wanted = tool_id if refused is None else ""
    if tool_id in (await state.caller_view(identity)).view.tools:
        raise Failure("already_granted", f"You may call {tool_id} already.")
    try:
        return await parts.desk.ask(AccessAsked(wanted, subject, identity.account_uid, why))
    except (AccessAbsent, AccessRefused) as error:
        raise lookup.not_found(tool_id) from error
    except AccessFull as error:
        detail = str(error) or "Too many access requests are open."
        raise Failure("too_many_requests", detail, retry_after=60) from error
    except AccessFailed as error:
        raise Failure("requests_unavailable", str(error), retry_after=5) from error
