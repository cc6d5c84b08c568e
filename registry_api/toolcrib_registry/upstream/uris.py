"""Which URIs of servers are passed on: pure.

A URI goes to callers, into their models and back to the server, so it holds nothing that hides or that authenticates.
"""

from __future__ import annotations

import re
from enum import StrEnum

MOST = 2_048
"""Characters of a URI, and of a template."""
OWN_SCHEME = "toolcrib"
"""The registry's own: a server that offered one would name what is another's."""
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,63}):")
_AUTHORITY = re.compile(r"//([^/?#]*)")


class Unusable(StrEnum):
    """Why a URI is left out of lists and is not read. No text repeats it."""

    TOO_LONG = f"it is longer than {MOST} characters"
    CHARACTERS = "it holds control characters or other characters that are not shown"
    NO_SCHEME = "it does not begin with a scheme"
    RESERVED = f"the scheme {OWN_SCHEME} is the registry's own"
    CREDENTIALS = "it holds credentials (user@ or user:password@)"


def unusable(uri: str) -> Unusable | None:
    """Why the URI, or template of URIs, of a server is not used; None: it is."""
    if len(uri) > MOST:
        return Unusable.TOO_LONG
    if not uri.isprintable():
        return Unusable.CHARACTERS
    scheme = _SCHEME.match(uri)
    if scheme is None:
        return Unusable.NO_SCHEME
    if scheme[1].lower() == OWN_SCHEME:
        return Unusable.RESERVED
    authority = _AUTHORITY.match(uri, scheme.end())
    if authority is not None and "@" in authority[1]:
        return Unusable.CREDENTIALS
    return None
