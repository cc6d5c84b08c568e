"""From a resource to what is published: names filled in, digests computed, dates as numbers.

Used by the operator for manifests and by the registry for runtime registrations, so that both give one tool one
digest.
"""

from toolcrib.publishing.backends import server_backend
from toolcrib.publishing.bindings import binding, suspension
from toolcrib.publishing.tools import candidate, manifest, server, tool, with_digests

__all__ = [
    "binding",
    "candidate",
    "manifest",
    "server",
    "server_backend",
    "suspension",
    "tool",
    "with_digests",
]
