"""The certificate of a listener, read again when its files change: no restart, no connection dropped.

A kubelet swaps the files of a Secret by renaming a link, cert-manager renews them months later; whoever listens must
follow. Connections keep the certificate that they began with.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from pathlib import Path

from cryptography import x509

from toolcrib_registry.settings import Tls

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""Between two looks at the files."""
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2; those of 1.3 are all good."""

_Stamp = tuple[tuple[int, int, int], ...]


class CertificateError(ValueError):
    """Certificate and key cannot be used; the message names files, never their content."""


class ServedCertificate:
    """Serves the newest usable pair of a certificate and a key.

    Args:
        name: of the listener, for the log.
        cert_file: PEM chain.
        key_file: PEM key.

    Raises:
        CertificateError: the pair cannot be used now.
    """

    def __init__(self, name: str, cert_file: str, key_file: str) -> None:
        self.name = name
        self._cert, self._key = cert_file, key_file
        self._stamp = self._look()
        self._current, self.expires_at = self._loaded()
        self.context = self._current
        self.context.sni_callback = self._choose
        """Asked at each handshake, whether the client names a server or not."""

    @classmethod
    def of(cls, name: str, tls: Tls) -> ServedCertificate | None:
        """The certificate that the settings name; None where they name none."""
        if tls.cert_file is None or tls.key_file is None:
            return None
        return cls(name, tls.cert_file, tls.key_file)

    def refresh(self) -> bool:
        """Look at the files; whether a new pair is served from now on. A pair that cannot be used is logged, once."""
        stamp = self._look()
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            self._current, self.expires_at = self._loaded()
        except CertificateError as error:
            log.error("listener %s: %s; the certificate of before is kept", self.name, error)
            return False
        log.info("listener %s: a new certificate is served", self.name)
        return True

    async def follow(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await asyncio.to_thread(self.refresh)

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        if connection.context is not self._current:
            connection.context = self._current

    def _look(self) -> _Stamp:
        found = []
        for path in (self._cert, self._key):
            try:
                status = os.stat(path)
                found.append((status.st_mtime_ns, status.st_ino, status.st_size))
            except OSError:
                found.append((0, 0, 0))
        return tuple(found)

    def _loaded(self) -> tuple[ssl.SSLContext, float]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(_CIPHERS)
        try:
            context.load_cert_chain(self._cert, self._key)
            leaf = x509.load_pem_x509_certificates(Path(self._cert).read_bytes())[0]
        except ssl.SSLError as error:
            # OpenSSL's reasons are words such as KEY_VALUES_MISMATCH or NO_START_LINE
            reason = (error.reason or "it cannot be read").lower().replace("_", " ")
            raise CertificateError(
                f"certificate {self._cert} and key {self._key} are no pair that can be served: {reason}"
            ) from error
        except (OSError, ValueError) as error:
            detail = error.strerror if isinstance(error, OSError) else "it cannot be read"
            raise CertificateError(
                f"certificate {self._cert} or key {self._key} cannot be used: {detail}"
            ) from error
        return context, leaf.not_valid_after_utc.timestamp()
