"""What a decision rests on, and what its record says of that, so that it can be decided again."""

from __future__ import annotations

from typing import NamedTuple

from toolcrib.audit.callers import caller_of, unmet_dates
from toolcrib_registry.audit.folding import Record
from toolcrib_registry.policy.state import CallerView


class Basis(NamedTuple):
    """What a decision rests on.

    Attributes:
        caller_view: whose it is, and the snapshot that decided.
        at: when, in seconds since the epoch, a whole number of milliseconds.
        charged: the record's binding is not the first that grants, but one of those that had room in their limits.
    """

    caller_view: CallerView
    at: float
    charged: bool = False


def evidence(basis: Basis | None, moment: float) -> Record:
    """What a record of `moment` says of its basis: nothing where the decision cannot be made again from the log."""
    if basis is None or (identity := basis.caller_view.identity) is None:
        return {}
    view = basis.caller_view
    if view.caller is None:
        view.caller = caller_of(identity, view.snapshot.policy)
    said: Record = {"who": view.caller}
    if after := round((moment - basis.at) * 1000):
        said["after"] = after
    if dates := unmet_dates(identity, basis.at):
        said["token"] = dates
    if basis.charged:
        said["charged"] = True
    return said


def evidence_of_view(view: CallerView, moment: float) -> Record:
    """The same of a list or a search, which was answered of what is seen: nothing where that was not all."""
    if not view.whole:
        return {}
    return evidence(Basis(view, moment if view.since <= moment < view.until else view.since), moment)
