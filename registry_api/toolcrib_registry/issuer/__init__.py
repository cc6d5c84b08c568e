"""The local issuer: identities for the local mode, without a cluster. `serve` has none."""

from toolcrib_registry.issuer.local import LocalIssuer

__all__ = ["LocalIssuer"]
