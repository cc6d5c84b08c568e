"""ServiceAccounts: which ones exist, for the bindings that name them (`accounts`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from toolcrib_operator.kinds.accounts import SERVICE_ACCOUNT
from toolcrib_operator.kinds.facts import Facts
from toolcrib_operator.kinds.kind import Change, Kind, made
from toolcrib_operator.objects import Entry, Ref

_METADATA = frozenset({"namespace", "name", "uid", "resourceVersion", "deletionTimestamp"})


class ServiceAccountKind(Kind):
    """There may be very many, and no more than their identity matters."""

    name = SERVICE_ACCOUNT
    plural = "serviceaccounts"
    bare = True

    def read(self, manifest: Mapping[str, Any], *, condense: bool = True) -> Entry:
        """Its identity."""
        return made(self.name, {k: v for k, v in (manifest.get("metadata") or {}).items() if k in _METADATA})

    def touched(self, change: Change, facts: Facts) -> Collection[Ref]:
        """Those that name it; accounts are published beside the bindings that name them."""
        facts.accounts.changed((change.ref,))
        return super().touched(change, facts)


SERVICE_ACCOUNTS = ServiceAccountKind()
