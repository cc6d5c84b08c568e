"""Whom the admin channel trusts: a CA file that is read again when it changes, and the name to verify.

Replicas are reached by their pods' addresses, which no certificate names; so each certificate is verified against one
name, that of their Service.
"""

from __future__ import annotations

import logging
import os
import ssl
from pathlib import Path

from toolcrib.telemetry.logs import Trouble
from toolcrib_operator.errors import ReplicaUnavailable

log = logging.getLogger(__name__)


class Trust:
    """How replicas' certificates are verified.

    Args:
        ca_file: authorities instead of the system's.
        server_name: the name that a certificate must have; None: the host of the replica's URL.
    """

    def __init__(self, ca_file: Path | None = None, server_name: str | None = None) -> None:
        self.server_name = server_name
        self._ca_file = ca_file
        self._seen: tuple[int, int, int] | None = None
        self._context: ssl.SSLContext | None = None
        self._trouble = Trouble(log)

    def context(self) -> ssl.SSLContext | None:
        """The TLS context for the next connection; None: the system's authorities.

        A file that cannot be used leaves what was, and is tried again each time: what it lacked may be no change that can be
        seen, such as the right to read it.

        Raises:
            ReplicaUnavailable: the CA file could never be read; the message names it.
        """
        if self._ca_file is None:
            return None
        try:
            status = os.stat(self._ca_file)
            seen = (status.st_mtime_ns, status.st_ino, status.st_size)
            if seen != self._seen:
                self._context = ssl.create_default_context(cafile=str(self._ca_file))
                if self._seen is not None:
                    log.info("the registry's CA file changed; using the new one")
                self._seen = seen
            self._trouble.over("--registry-ca %s can be used again", self._ca_file)
        except OSError as error:  # ssl.SSLError is one
            detail = error.reason if isinstance(error, ssl.SSLError) else error.strerror
            problem = f"--registry-ca {self._ca_file} cannot be used: {detail or type(error).__name__}"
            if self._context is None:
                raise ReplicaUnavailable(problem) from error
            self._trouble.failed("%s; keeping the previous CA bundle", problem)
        return self._context

    def explained(self, error: ssl.SSLCertVerificationError) -> str:
        """What is wrong with a certificate, and which option says otherwise."""
        named = f"the name {self.server_name}" if self.server_name else "the host of the replica's URL"
        return (
            f"the certificate is not trusted: {error.verify_message.rstrip('.')}; "
            f"verified against {named} (--registry-server-name) and "
            f"{self._ca_file or 'the system'} (--registry-ca)"
        )
