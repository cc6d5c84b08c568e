"""ServiceAccounts: which ones exist, for the bindings that name them (`accounts`)."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from typing import Any

from toolcrib_operator.kinds.accounts import SERVICE_ACCOUNT
from toolcrib_operator.kinds.facts import Facts
from toolcrib_operator.kinds.kind import Kind, made
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

    def touched(
        self, ref: Ref, entry: Entry | None, before: Collection[Hashable], after: Collection[Hashable], facts: Facts
    ) -> Collection[Ref]:  # fmt: skip
        """Those that name it; accounts are published beside the bindings that name them."""
        if facts.accounts is not None:
            facts.accounts.changed((ref,))
        return facts.links.of(ref)


SERVICE_ACCOUNTS = ServiceAccountKind()
