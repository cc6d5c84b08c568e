"""Authorizers that are broken on purpose: what finds nothing in them proves nothing."""

import pytest

from toolcrib.authorizer import Policy
from toolcrib.authorizer.bindings import CompiledBinding
from toolcrib.authorizer.policy import Near
from toolcrib.identity import Identity


def without_territory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A binding says something of every namespace: neither the index by namespace nor the binding itself keeps it in."""

    def near(self: Policy, identity: Identity, namespace: str) -> Near:
        every = self.of(identity)
        return Near(every, tuple(b for b in every if b.source.denies))

    monkeypatch.setattr(Policy, "near", near)
    monkeypatch.setattr(CompiledBinding, "in_namespaces", lambda self, tool: True)
