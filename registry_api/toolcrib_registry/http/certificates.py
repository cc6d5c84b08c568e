"""The certificate of a listener, read again when its files change: no restart, no connection dropped.

A kubelet swaps the files of a Secret by renaming a link, cert-manager renews them months later; anyone who listens must
follow. Connections keep the certificate that they began with.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import time
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509

from toolcrib.telemetry.logs import Trouble
from toolcrib_registry.settings_sections import Tls

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""Between two looks at the files."""
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2; those of 1.3 are all good."""

_Stamp = tuple[tuple[int, int, int], ...]


class CertificateError(ValueError):
    """Certificate and key cannot be used; the message names files, never their content."""


@dataclass(frozen=True, slots=True)
class _Pair:
    """A certificate and its key, loaded; times are seconds since 1970."""

    context: ssl.SSLContext
    begins_at: float
    expires_at: float

    def wrong_at(self, now: float) -> str | None:
        """Why clients would refuse it now; None where they would not."""
        if now >= self.expires_at:
            return "has expired"
        return "is not valid yet" if now < self.begins_at else None


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
        self._trouble = Trouble(log)
        self._stamp = self._look()
        self._pair = self._loaded()
        if (wrong := self._pair.wrong_at(time.time())) is not None:
            log.warning("listener %s: certificate %s %s", name, cert_file, wrong)
        self.context = self._pair.context
        self.context.sni_callback = self._choose
        """Asked at each handshake, whether the client names a server or not."""

    @classmethod
    def of(cls, name: str, tls: Tls) -> ServedCertificate | None:
        """The certificate that the settings name; None where they name none."""
        if tls.cert_file is None or tls.key_file is None:
            return None
        return cls(name, tls.cert_file, tls.key_file)

    @property
    def expires_at(self) -> float:
        """When the certificate that is served expires, in seconds since 1970."""
        return self._pair.expires_at

    def refresh(self) -> bool:
        """Look at the files; whether a new pair is served from now on.

        A pair that cannot be used is logged, and tried again at each look: what it lacked may be no change of the files
        that can be seen, such as the right to read them. One that clients would refuse now does not replace one that
        they accept.
        """
        stamp = self._look()
        if stamp == self._stamp:
            self._trouble.over("listener %s: the files match the served certificate again", self.name)
            return False
        try:
            pair = self._loaded()
            now = time.time()
            if (wrong := pair.wrong_at(now)) is not None and self._pair.wrong_at(now) is None:
                raise CertificateError(f"certificate {self._cert} {wrong}")
        except CertificateError as error:
            message = "listener %s: %s; keeping the previous certificate"
            self._trouble.failed(message, self.name, error, level=logging.ERROR)
            return False
        self._stamp, self._pair = stamp, pair
        self._trouble.over("listener %s: the certificate is usable again", self.name)
        log.info("listener %s: serving a new certificate", self.name)
        return True

    async def follow(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await asyncio.to_thread(self.refresh)

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        current = self._pair.context
        if connection.context is not current:
            connection.context = current

    def _look(self) -> _Stamp:
        found = []
        for path in (self._cert, self._key):
            try:
                status = os.stat(path)
                found.append((status.st_mtime_ns, status.st_ino, status.st_size))
            except OSError:
                found.append((0, 0, 0))
        return tuple(found)

    def _loaded(self) -> _Pair:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(_CIPHERS)
        try:
            # without a password of ours OpenSSL asks for one at the terminal, and waits
            context.load_cert_chain(self._cert, self._key, password=self._refuse_password)
            leaf = x509.load_pem_x509_certificates(Path(self._cert).read_bytes())[0]
        except CertificateError:
            raise
        except ssl.SSLError as error:
            # OpenSSL's reasons are words such as KEY_VALUES_MISMATCH or NO_START_LINE
            reason = (error.reason or "it cannot be read").lower().replace("_", " ")
            raise CertificateError(
                f"certificate {self._cert} and key {self._key} do not work together: {reason}"
            ) from error
        except (OSError, ValueError) as error:
            detail = error.strerror if isinstance(error, OSError) else "it cannot be read"
            raise CertificateError(
                f"certificate {self._cert} or key {self._key} cannot be used: {detail}"
            ) from error
        return _Pair(context, leaf.not_valid_before_utc.timestamp(), leaf.not_valid_after_utc.timestamp())

    def _refuse_password(self) -> str:
        raise CertificateError(f"key {self._key} is encrypted; use a key without a password")
