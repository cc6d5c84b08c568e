"""Where an agent's bearer token comes from.

A token source is any callable that returns the token; it is asked before every request, so a token that rotates is
picked up without a restart. Sources may offer `renew()`, called when the registry has refused the token. No source
shows its token in `repr`, logs or errors.
"""

from __future__ import annotations

import base64
import json
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path

from toolcrib_runner.errors import TokenUnavailable

TokenSource = Callable[[], str]
MAX_TOKEN = 64 * 1024
_PRINTABLE = re.compile(r"[!-~]+")


def checked(token: str) -> str:
    """The token, if it can stand in an Authorization header (RFC 6750 §2.1).

    Raises:
        TokenUnavailable: it is empty or holds characters that a header must not carry.
    """
    if not token:
        raise TokenUnavailable("the token is empty")
    if len(token) > MAX_TOKEN or not _PRINTABLE.fullmatch(token):
        raise TokenUnavailable(
            "the token is not printable ASCII without spaces; check that this is the token file"
        )
    return token


def renew(source: TokenSource) -> None:
    """Tell a source that its token was refused, if it wants to know."""
    told = getattr(source, "renew", None)
    if callable(told):
        told()


def named_in(source: TokenSource | None) -> tuple[str, str] | None:
    """Issuer and subject that a source's token (a JWT) names; None where it names none. Unverified: no ground to trust."""
    try:
        claims = source().split(".")[1] if source is not None else ""
        read = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
        return str(read["iss"]), str(read["sub"])
    except (TokenUnavailable, ValueError, LookupError, TypeError, RecursionError):
        return None


class StaticToken:
    """One token for ever."""

    def __init__(self, token: str) -> None:
        self._token = checked(token.strip())

    def __call__(self) -> str:
        return self._token

    def __repr__(self) -> str:
        return "StaticToken(…)"


class TokenFile:
    """A token in a file that somebody rotates, as the kubelet does with projected service-account tokens.

    The file is read again when it was replaced or rewritten (modification time, size or inode differ). While it
    cannot be read, the last token read stays in use.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        self._stamp: tuple[int, int, int] | None = None
        self._token: str | None = None

    def __call__(self) -> str:
        """The current token.

        Raises:
            TokenUnavailable: the file has never held a usable token.
        """
        with self._lock:
            try:
                self._read_if_changed()
            except (OSError, TokenUnavailable) as error:
                if self._token is None:
                    why = error.strerror if isinstance(error, OSError) else str(error)
                    raise TokenUnavailable(f"no token in {self.path}: {why}") from None
            assert self._token is not None
            return self._token

    def renew(self) -> None:
        """Read the file anew at the next call, whatever its modification time says."""
        with self._lock:
            self._stamp = None

    def _read_if_changed(self) -> None:
        # Symbolic links are followed: a projected volume is updated by swapping one.
        with self.path.open("rb") as file:
            about = os.fstat(file.fileno())
            stamp = (about.st_mtime_ns, about.st_size, about.st_ino)
            if stamp == self._stamp:
                return
            content = file.read(MAX_TOKEN + 2)
        self._token = checked(content.decode("ascii", errors="replace").strip())
        self._stamp = stamp

    def __repr__(self) -> str:
        return f"TokenFile({str(self.path)!r})"
