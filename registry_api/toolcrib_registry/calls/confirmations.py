"""Calls that a person confirms one by one: which wait, what was decided of them, and that each is made once.

A confirmation is bound to the caller, the tool as it is, and what it is given, by a seal that replicas alone can make: nobody
who carries it in between can stretch it or show other arguments. It changes nothing that the authorizer decides: the call
that uses it is decided like any other.

That it is used once is the counters' to say: its account has room for one call. Counters in memory forget with their process,
so there a replica takes only confirmations that it asked for itself.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from toolcrib.audit import redaction
from toolcrib.identity import Identity
from toolcrib.wire.confirmations import (
    MOST_ARGUMENTS,
    MOST_CALLS,
    CallDecision,
    CallsReport,
    CallsTold,
    ConfirmableCall,
    is_caller,
)
from toolcrib.wire.publish import PublishedLimits, PublishedTool
from toolcrib_registry.calls.arguments import CheckedArguments
from toolcrib_registry.failures import Failure
from toolcrib_registry.limits.counters import Charge, Counters, CountersUnavailable, Demand

SECONDS = 300
"""From the first call on; it is confirmed and made within."""
EACH = 10
"""Calls of one agent that may wait at one replica."""
NEEDED, UNAVAILABLE, REJECTED = "confirmation_needed", "confirmation_unavailable", "confirmation_rejected"
PURPOSE = b"toolcrib call confirmation 1"
_ONCE = PublishedLimits(per_day=1)
_RETRY_SECONDS = 5
_ORDER = (CallDecision.REJECTED, CallDecision.CONFIRMED, None)


class Keys(Protocol):
    """Keys that all replicas have (`calls.assertions.keys`)."""

    def sealing(self, purpose: bytes) -> tuple[bytes, ...]:
        """The first seals, each opens."""
        ...


@dataclass(frozen=True, slots=True)
class Given:
    """What a call gives its tool: arguments, and what the caller answers to the tool's questions."""

    arguments: CheckedArguments
    responses: Mapping[str, Any] | None = None
    state: str | None = None

    def shown(self, tool: PublishedTool) -> tuple[str, int]:
        """For people: ASCII, so that nothing hides or reorders, and how many characters of secrets are left out."""
        found, hidden = redaction.mask(self.arguments.value, tool.input_schema)
        if self.responses is not None:
            responses, more = redaction.mask(self.responses)
            found, hidden = {"arguments": found, "inputResponses": responses}, hidden + more
        return json.dumps(found, sort_keys=True), hidden

    def sealed(self) -> str:
        """All of it."""
        return json.dumps([self.arguments.value, self.responses, self.state], sort_keys=True)


@dataclass(frozen=True, slots=True)
class Confirmed:
    """Which confirmation let a call through, and whose it is: for its record."""

    id: str
    by: str


class Confirmations:
    """The calls that wait at this replica, and those of others that it was told of. Used from one event loop only.

    Args:
        counters: say that each is used once.
        keys: seal what comes back from people.
        now: seconds since the epoch.
        count: told each event: asked, confirmed, rejected, used, expired.
        shared: the counters are those of all replicas.
        several: there are several replicas, whatever the operator says.
    """

    def __init__(
        self,
        counters: Counters,
        keys: Keys,
        now: Callable[[], float],
        count: Callable[[str], None],
        *,
        shared: bool,
        several: bool,
    ) -> None:
        self._counters, self._keys, self._now, self._count = counters, keys, now, count
        self._shared, self._several = shared, several
        self._replicas = 1
        self._calls: dict[str, ConfirmableCall] = {}
        self._own: set[str] = set()
        """Asked for here."""
        self._seen: set[str] = set()
        """Of those: the operator has them."""
        self._used: dict[str, int] = {}
        """Until when each is remembered."""

    async def admit(self, identity: Identity, tool: PublishedTool, given: Given) -> Confirmed:
        """Return if a person has confirmed exactly this call; that is used up then.

        Raises:
            Failure: confirmation_needed, with the id to confirm; confirmation_rejected; confirmation_unavailable;
                limits_unavailable: whether it was used already is not known.
        """
        if (self._several or self._replicas > 1) and not self._shared:
            raise Failure(
                UNAVAILABLE,
                "Several replicas serve, and they share no counter store: a confirmation could be used twice.",
            )
        # one that another call used meanwhile is gone: of many calls at one time the others wait for one and the same again
        while (call := self._found(identity, tool, given)) is not None:
            more = {"confirmation": call.key}
            if call.decision is CallDecision.REJECTED:
                raise Failure(REJECTED, "A person rejected this call.", extra=more)
            if call.decision is None:
                raise self._needed(call)
            if call.accepted_hidden != call.hidden:
                detail = f"Its confirmation does not accept the {call.hidden:,} hidden characters of the arguments."
                raise Failure(REJECTED, detail, extra=more)
            if is_caller(call.decided_by, call.names):
                raise Failure(REJECTED, "The caller cannot confirm its own call.", extra=more)
            if await self._taken(call):
                return Confirmed(call.key, call.decided_by)
        raise self._needed(self._asked(identity, tool, given))

    def waiting(self) -> list[ConfirmableCall]:
        """The calls that nobody has decided about, the oldest first."""
        self._sweep()
        found = (call for call in self._calls.values() if call.decision is None)
        return sorted(found, key=lambda each: (each.asked_at, each.id))

    def decide(
        self, key: str, decision: CallDecision, by: str, accepted_hidden: int = 0
    ) -> ConfirmableCall | None:
        """Note what a person said of a waiting call, by its key or its id; None: it does not wait."""
        call = next((each for each in self.waiting() if key in (each.key, each.id)), None)
        if call is not None:
            update = {"decision": decision, "decided_by": by, "accepted_hidden": accepted_hidden}
            call = call.model_copy(update=update)
            self._take(call)
        return call

    def told(self, told: CallsTold) -> None:
        """Take over what the operator knows of all replicas' calls."""
        self._replicas = told.replicas
        self._sweep()
        known = {call.id: call for call in told.calls if call.id not in self._used}
        withdrawn = [i for i in self._calls if i not in known and (i not in self._own or i in self._seen)]
        for gone in withdrawn:
            self._forget(gone)
        for call in known.values():
            if call.id in self._own:
                self._seen.add(call.id)
                held = self._calls.get(call.id)
                if held is not None and held.seal == call.seal:
                    self._take(call)
            elif self._shared and call.expires_at > self._now():
                self._calls[call.id] = call

    def report(self) -> CallsReport:
        """What this replica asks for, and what was used here."""
        self._sweep()
        own = (self._calls[i] for i in sorted(self._own) if i in self._calls)
        return CallsReport(
            waiting=tuple(call for call in own if call.decision is None), used=tuple(self._used)
        )

    def _take(self, call: ConfirmableCall) -> None:
        if call.decision is not None and self._calls[call.id].decision is None:
            self._count(call.decision.value.lower())
        self._calls[call.id] = call

    def _found(self, identity: Identity, tool: PublishedTool, given: Given) -> ConfirmableCall | None:
        """What is known of exactly this call; of several what was decided, a rejection first."""
        self._sweep()
        who = (tool.tool_id, identity.issuer, identity.subject)
        of_caller = (c for c in self._calls.values() if (c.tool_id, c.issuer, c.subject) == who)
        found = (call for call in of_caller if self._is(call, identity, tool, given))
        return min(found, key=lambda each: (_ORDER.index(each.decision), each.asked_at), default=None)

    async def _taken(self, call: ConfirmableCall) -> bool:
        """Whether this is the one call that may use it."""
        once = [[Demand(f"confirmation/{call.id}", _ONCE)]]
        try:
            charged = await self._counters.charge(once, lease=SECONDS)
        except CountersUnavailable:
            raise Failure(
                "limits_unavailable",
                "The counter store cannot say whether this confirmation was used already. Retry later.",
                retry_after=_RETRY_SECONDS,
            ) from None
        self._forget(call.id)
        self._used[call.id] = call.expires_at
        if not isinstance(charged, Charge):
            return False
        self._count("used")
        return True

    def _asked(self, identity: Identity, tool: PublishedTool, given: Given) -> ConfirmableCall:
        shown, hidden = given.shown(tool)
        if len(shown) > MOST_ARGUMENTS:
            raise Failure(
                UNAVAILABLE,
                f"The arguments have {len(shown):,} characters. A person can be shown {MOST_ARGUMENTS:,}.",
            )
        same = sum(1 for i in self._own if (c := self._calls.get(i)) and c.subject == identity.subject)
        if same >= EACH or len(self._own) >= MOST_CALLS:
            raise Failure(
                UNAVAILABLE,
                f"{same} calls of this agent wait for confirmation. At most {EACH} may wait.",
                retry_after=_RETRY_SECONDS,
            )
        now = int(self._now())
        names = dict.fromkeys(n for n in (identity.subject, identity.user, identity.client) if n)
        call = ConfirmableCall(
            id=secrets.token_hex(6),
            tool_id=tool.tool_id,
            agent=identity.label[:512],
            issuer=identity.issuer,
            subject=identity.subject,
            names=tuple(names),
            arguments=shown,
            hidden=hidden,
            asked_at=now,
            expires_at=now + SECONDS,
            seal="0" * 64,
        )
        key = self._keys.sealing(PURPOSE)[0]
        call = call.model_copy(update={"seal": _seal(key, call, identity, tool, given)})
        self._calls[call.id] = call
        self._own.add(call.id)
        self._count("asked")
        return call

    def _is(self, call: ConfirmableCall, identity: Identity, tool: PublishedTool, given: Given) -> bool:
        return any(
            hmac.compare_digest(_seal(key, call, identity, tool, given), call.seal)
            for key in self._keys.sealing(PURPOSE)
        )

    def _needed(self, call: ConfirmableCall) -> Failure:
        command = f"toolcrib calls confirm {call.key}"
        left = max(1, int(call.expires_at - self._now()))
        return Failure(
            NEEDED,
            f"A person must confirm this call: `{command}`. Then send the same call again, within {left} s.",
            extra={"confirmation": call.key, "command": command, "expires_in": left},
        )

    def _sweep(self) -> None:
        now = self._now()
        for over in [i for i, call in self._calls.items() if call.expires_at <= now]:
            if over in self._own:
                self._count("expired")
            self._forget(over)
        for over in [i for i, until in self._used.items() if until <= now]:
            del self._used[over]

    def _forget(self, call: str) -> None:
        self._calls.pop(call, None)
        self._own.discard(call)
        self._seen.discard(call)


def _seal(key: bytes, call: ConfirmableCall, identity: Identity, tool: PublishedTool, given: Given) -> str:
    carried = call.model_dump(mode="json", exclude={"seal", "decision", "decided_by", "accepted_hidden"})
    bound: Iterable[str | None] = (
        identity.issuer,
        identity.subject,
        identity.client,
        identity.account_uid,
        tool.tool_id,
        tool.uid,
        tool.digest,
        tool.route_digest,
        given.sealed(),
    )
    return hmac.new(key, json.dumps([carried, *bound]).encode(), hashlib.sha256).hexdigest()
