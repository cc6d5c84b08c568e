"""What the local issuer refuses.

IssuerError
├── UnsafePermissions    a private file or folder that others can read; the message says how to mend it
├── KeyDamaged           the file of the key, or of client secrets, holds none
└── NotMintable          a name, scope or lifetime that no token is made for (also a ValueError)
"""

from __future__ import annotations


class IssuerError(Exception):
    """The root; messages are for people and hold no secret."""


class UnsafePermissions(IssuerError):
    """A private file or folder that others can read; the message says how to mend it."""


class KeyDamaged(IssuerError):
    """The file of the key, or of client secrets, holds none."""


class NotMintable(IssuerError, ValueError):
    """A name, scope or lifetime that no token is made for."""
