"""The local issuer: identities for the local mode, without a cluster. `serve` has none."""

from toolcrib_registry.identity.issuer.errors import IssuerError
from toolcrib_registry.identity.issuer.local import ClientTokens, LocalIssuer

__all__ = ["ClientTokens", "IssuerError", "LocalIssuer"]
