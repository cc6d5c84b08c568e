"""Whether an answer repeats a secret that was sent with the call: as it is, or in the forms that services write by themselves.

Looked for: the secret as it is, base64 (either alphabet, at any alignment, folded into lines), hex, percent-encoded, and escaped as in JSON, also
within a JSON text within JSON. What was compressed, encrypted, hashed or split is not found: a backend that wants to give its credential away can.

Each body is searched in at most four readings, each in linear time: well below a microsecond for a byte.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

TELLING = 4
"""Characters from which on a secret is looked for: a shorter one stands in every other text by chance."""
_TELLING_BASE64 = 6
"""The same of the digits of base64 that a secret determines: from five bytes on."""
_LEVELS = 2
_ESCAPE = re.compile(r'\\(?:u([0-9A-Fa-f]{4})|(["\\/nrt]))')
_PERCENT = re.compile(rb"%([0-9A-Fa-f]{2})")
_SIMPLE = {'"': '"', "\\": "\\", "/": "/", "n": "\n", "r": "\r", "t": "\t"}
_BLANK = b" \t\r\n"
_ONE_ALPHABET = bytes.maketrans(b"-_", b"+/")
_LOWER = bytes.maketrans(b"ABCDEF", b"abcdef")


@dataclass(frozen=True)
class Secrets:
    """What must not come back, and the forms that are looked for."""

    plain: tuple[bytes, ...]

    @classmethod
    def of(cls, secrets: Iterable[str]) -> Secrets:
        """These; those that tell nothing are left out."""
        return cls(tuple(dict.fromkeys(s.encode() for s in secrets if len(s) >= TELLING)))

    @cached_property
    def base64(self) -> tuple[bytes, ...]:
        """Their digits of base64."""
        return tuple(dict.fromkeys(form for secret in self.plain for form in _base64(secret)))

    @cached_property
    def hex(self) -> tuple[bytes, ...]:
        """Their hexadecimal digits."""
        return tuple(secret.hex().encode() for secret in self.plain)

    def repeated_in(self, body: bytes) -> bool:
        """Whether `body` repeats one of the secrets, as it is or encoded."""
        # every form is as long as its secret at least, and readings only get shorter
        if not self.plain or len(body) < min(map(len, self.plain)):
            return False
        return any(self._stands_in(reading) for reading in _readings(body))

    def _stands_in(self, text: bytes) -> bool:
        if any(form in text for form in self.plain):
            return True
        digits = text.translate(_ONE_ALPHABET, _BLANK)
        if any(form in digits for form in self.base64):
            return True
        digits = text.translate(_LOWER, _BLANK + b":")
        return any(form in digits for form in self.hex)


def _base64(secret: bytes) -> Iterator[bytes]:
    """The digits that `secret` determines alone, whatever stands before and after it, for each place within three bytes."""
    for before in range(3):
        first, end = -(-8 * before // 6), 8 * (before + len(secret)) // 6
        if end - first >= _TELLING_BASE64:
            yield base64.b64encode(bytes(before) + secret)[first:end]


def _readings(body: bytes) -> Iterator[bytes]:
    """The body as it is, without JSON's escapes (twice: a JSON text may hold another), and percent-decoded."""
    yield body
    for _ in range(_LEVELS):
        if b"\\" in body:
            body = _unescaped(body)
            yield body
    if b"%" in body:
        yield _percent_decoded(body)


def _percent_decoded(body: bytes) -> bytes:
    """The body with `%41` as `A`; what is no such escape stays."""
    try:  # by the interpreter's decoder of backslash escapes, which is many times as fast
        escaped = body.replace(b"\\", b"\0").replace(b"%", b"\\u00")
        return escaped.decode("raw_unicode_escape").encode("latin-1").replace(b"\0", b"\\")
    except UnicodeError:
        return _PERCENT.sub(lambda found: bytes.fromhex(found[1].decode()), body)


def _unescaped(body: bytes) -> bytes:
    """The body's text without JSON's escapes: of a member that stands twice the parsed value has the last one alone."""
    text = _unescaped_ascii(body) if body.isascii() else None
    if text is None:
        text = _ESCAPE.sub(
            lambda found: chr(int(found[1], 16)) if found[1] else _SIMPLE[found[2]],
            body.decode(errors="replace"),
        )
    try:
        return text.encode()
    except UnicodeEncodeError:  # pairs of surrogates, as JSON writes what lies beyond the basic plane
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def _unescaped_ascii(body: bytes) -> str | None:
    """The same by the interpreter's own decoder, many times as fast; None where an escape is broken."""
    body = body.replace(b"\\\\", b"\0")
    for name, meant in _SIMPLE.items():
        if name != "\\":
            body = body.replace(b"\\" + name.encode(), meant.encode())
    try:
        return body.decode("raw_unicode_escape").replace("\0", "\\")
    except UnicodeDecodeError:
        return None
