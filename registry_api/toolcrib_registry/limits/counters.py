"""The store of counters: its port, and what it says about one account.

It says: charged, or no room and for how long, or that it cannot tell.

An account is one binding together with one caller, by issuer and subject: neither the token nor the address matters,
and a binding that was deleted and recreated is another account.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from toolcrib.identity import Identity
from toolcrib.wire.publish import PublishedBinding, PublishedLimits


class Limit(StrEnum):
    """The kinds of limits: three of a binding, and each agent's own."""

    PER_MINUTE = "per_minute"
    PER_DAY = "per_day"
    CONCURRENT = "concurrent"
    DEFAULT = "default_concurrent"
    """Not a binding's: what each agent has on each replica."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What a binding that grants a call would be charged; `limits` None: nothing, it always has room."""

    account: str
    limits: PublishedLimits | None


Groups = Sequence[Sequence[Demand]]
"""A call needs one binding of each group: the first that has room."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """No room: which limit is used up, and in how many seconds (at least 1) it is worth asking again.

    `group` and `place` say where the demand stands that has room first.
    """

    limit: Limit
    seconds: int
    group: int = 0
    place: int = 0


@dataclass(frozen=True, slots=True)
class Charge:
    """One call that was counted: of each group the place of the demand that is charged.

    `slot` is held on `accounts` until it is released: those of the charged ones that bound concurrency.
    """

    places: tuple[int, ...]
    accounts: tuple[str, ...] = ()
    slot: str = ""


class CountersUnavailable(Exception):
    """The store of counters cannot be asked now; the message says why, without addresses or credentials."""


class CountersBusy(CountersUnavailable):
    """The call's turn, or its answer, does not come in time, but others are answered: nothing goes uncounted."""


def account_of(binding: PublishedBinding, identity: Identity) -> str:
    """The account that a call of `identity` by `binding` counts on: `<uid>/<hash of issuer and subject>`."""
    who = json.dumps([identity.issuer, identity.subject]).encode()
    return f"{binding.uid}/{hashlib.sha256(who).hexdigest()[:32]}"


class Counters(Protocol):
    """Counts calls by account. One contract suite: `tests/contract/test_counters.py`."""

    async def charge(self, groups: Groups, *, lease: float) -> Charge | Shortage:
        """Count one call on one account of each group, on all or on none: never more than a limit in any window.

        Of each group the first with room is charged; one that serves several groups once. `lease` is for how many
        seconds at most the call holds its slot, should nobody release it.

        Raises:
            CountersUnavailable: it is not known whether there is room, in bounded time.
        """
        ...

    async def release(self, charge: Charge) -> None:
        """Free its slot: done when it returns, or soon after if the caller is cancelled. Never raises else."""
        ...

    async def healthy(self) -> None:
        """Return if the store of counters can answer now.

        Raises:
            CountersUnavailable: it cannot.
        """
        ...

    async def aclose(self) -> None:
        """Give back what is held and release connections."""
        ...
