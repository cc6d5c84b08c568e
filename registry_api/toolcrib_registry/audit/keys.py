"""The secret that the decision log is chained with, read from its file."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from toolcrib.audit.chain import NO_KEY, AuditKey, AuditKeyError


class KeyFileError(ValueError):
    """The key file cannot be used; the message says why and shows nothing of it."""


def read(path: str | None) -> AuditKey:
    """The key of a file; without a file none.

    Raises:
        KeyFileError: it cannot be read, everybody can read it, or its secret is too short.
    """
    if path is None:
        return NO_KEY
    try:
        with Path(path).open("rb") as file:
            # a Secret's volume gives it to the pod's group; the world is nobody's
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o007:
                raise KeyFileError(f"audit.key_file {path} is readable by everyone; run: chmod 600 {path}")
            return AuditKey.of(file.read(64 * 1024))
    except OSError as error:
        raise KeyFileError(f"audit.key_file {path} cannot be read: {error.strerror}") from error
    except AuditKeyError as error:
        raise KeyFileError(
            f"audit.key_file {path}: {error}; create one with: openssl rand -hex 32"
        ) from error
