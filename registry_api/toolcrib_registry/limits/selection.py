"""Which bindings a call is charged to: of each group of alternatives the first whose limits have room.

The order is the authorizer's: cluster before namespaced, then by namespace and name. A binding without limits always
has room. One whose room cannot be known, since the store of counters is away, is passed over for a later one that
has room for certain.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from toolcrib.wire.publish import PublishedBinding
from toolcrib_registry.limits.counters import Charge, CountersBusy, CountersUnavailable, Shortage

Groups = Sequence[Sequence[PublishedBinding]]
Ask = Callable[[PublishedBinding], Awaitable[Charge | Shortage | None]]
"""Charges a binding that has limits, or only looks (None: there is room); raises CountersUnavailable."""


@dataclass(slots=True)
class Choice:
    """What was chosen; `complete` if every group has somebody with room.

    Else `short` and `unknown` say why one has nobody: the one of its bindings that has room again first, and the first
    of those whose room cannot be known; `busy` if that is so since too much is to be counted.
    """

    chosen: dict[str, PublishedBinding] = field(default_factory=dict)
    charges: list[Charge] = field(default_factory=list)
    complete: bool = False
    short: tuple[PublishedBinding, Shortage] | None = None
    unknown: PublishedBinding | None = None
    busy: bool = False

    @property
    def deciding(self) -> PublishedBinding:
        """The one that is named: the first of the chosen, by the authorizer's order."""
        return min(self.chosen.values(), key=_order)


async def choose(groups: Groups, ask: Ask, choice: Choice) -> Choice:
    """One binding of each group into `choice`, an empty one; each is asked at most once and serves all its groups.

    Ends at the first group without room. Whatever ends it, `choice.charges` holds what was charged until then.
    """
    refused: dict[str, Shortage | CountersUnavailable] = {}
    for group in groups:
        if not await _one_of(group, ask, choice, refused):
            return choice
    choice.complete = True
    return choice


async def _one_of(
    group: Sequence[PublishedBinding],
    ask: Ask,
    choice: Choice,
    refused: dict[str, Shortage | CountersUnavailable],
) -> bool:
    short: tuple[PublishedBinding, Shortage] | None = None
    unknown: PublishedBinding | None = None
    for binding in group:
        if binding.uid in choice.chosen:
            return True
        answer: Charge | Shortage | CountersUnavailable | None = None
        if binding.limits is not None:
            answer = refused.get(binding.uid) or await _answer(ask, binding)
        match answer:
            case Shortage():
                refused[binding.uid] = answer
                if short is None or answer.seconds < short[1].seconds:
                    short = binding, answer
            case CountersUnavailable():
                refused[binding.uid] = answer
                unknown = unknown or binding
                choice.busy = choice.busy or isinstance(answer, CountersBusy)
            case _:
                choice.chosen[binding.uid] = binding
                if answer is not None:
                    choice.charges.append(answer)
                return True
    choice.short, choice.unknown = short, unknown
    return False


async def _answer(ask: Ask, binding: PublishedBinding) -> Charge | Shortage | CountersUnavailable | None:
    try:
        return await ask(binding)
    except CountersUnavailable as error:
        return error


def _order(binding: PublishedBinding) -> tuple[bool, str, str]:
    return binding.namespace is not None, binding.namespace or "", binding.name
