"""Toolcrib's core: resource models, identities, the authorizer, digests and wire shapes.

Everything here is pure: no framework, no client, no clock, no network. The three services and the command
line stand on it and meet each other only over HTTP and the Kubernetes API.
"""

from toolcrib.version import __version__

__all__ = ["__version__"]
