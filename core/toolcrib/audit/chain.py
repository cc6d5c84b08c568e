"""The decision log's chain: how a record becomes a line, and what ties each line to the one before it.

A line is one JSON object whose first members are `v`, `chain`, `seq`, `prev`, `kid`, `ts`, `replica`, `action`, in this
order, and whose last one is `hash`. It is printable ASCII: nothing that a caller wrote can move or reorder what is shown of it.

    hash = HMAC-SHA256(chain key, every byte of the line before `,"hash":"`), in hexadecimal digits

`prev` is the hash of the line before, so each hash covers all that stands before it; the very first line has 64 zeros.
The chain key is HMAC-SHA256(secret, "toolcrib audit chain"); `kid` is the first 16 digits of HMAC-SHA256(secret,
"toolcrib audit key id"). Without a secret the hash is plain SHA-256 and `kid` is `none`. A chain is one run of one
replica: its `seq` begins at 1. After Bellare and Yee, "Forward Integrity for Secure Audit Logs" (1997), and Schneier and
Kelsey, "Secure Audit Logs to Support Computer Forensics" (1999), with outside anchors in the place of keys that evolve.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple

GENESIS = "0" * 64
UNKEYED = "none"
SHORTEST_SECRET = 32
"""Bytes of a secret at least."""

BEGIN, END, GAP = "audit.begin", "audit.end", "audit.gap"
ROTATED, RETIRED, REOPENED = "audit.rotated", "audit.retired", "audit.reopened"
"""Actions of the log itself: a run begins or ends, records were lost, a file was closed, deleted, or moved away."""
OWN, POLICY, IDENTITY = "audit.", "policy.", "identity"
"""How the log's own actions begin, those that state the policy, and the one that explains a caller."""
LOST_POLICY = "policy"
"""What a gap says was lost where a revision of the policy is not stated."""

_TAIL = len(',"hash":"') + 64 + len('"}')
_START = re.compile(
    rb'\{"v":1,"chain":"([A-Za-z0-9._@-]{1,400})","seq":([1-9][0-9]{0,17}),"prev":"([0-9a-f]{64})",'
    rb'"kid":"([0-9a-f]{16}|none)","ts":"([0-9TZ:.+-]{1,40})","replica":"([A-Za-z0-9._-]{1,253})",'
    rb'"action":"([a-z_.-]{1,40})"[,}]'
)
_END = re.compile(rb',"hash":"([0-9a-f]{64})"\}')
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
_UNPRINTABLE = re.compile(r"[^\x20-\x7e]")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


class AuditKeyError(ValueError):
    """A secret that cannot be a key; the message says why and shows nothing of it."""


@dataclass(frozen=True, slots=True)
class AuditKey:
    """What a log is chained with. Made of one secret, of which each use gets a key of its own."""

    kid: str
    _chain: bytes | None = field(repr=False)
    _arguments: bytes | None = field(repr=False)

    @classmethod
    def of(cls, secret: bytes) -> AuditKey:
        """The key of a secret; white space around it does not count.

        Raises:
            AuditKeyError: it is shorter than 32 bytes.
        """
        secret = secret.strip()
        if len(secret) < SHORTEST_SECRET:
            raise AuditKeyError(f"an audit key has at least {SHORTEST_SECRET} bytes")
        return cls(
            hmac.digest(secret, b"toolcrib audit key id", "sha256").hex()[:16],
            hmac.digest(secret, b"toolcrib audit chain", "sha256"),
            hmac.digest(secret, b"toolcrib audit arguments", "sha256"),
        )

    @property
    def keyed(self) -> bool:
        """Whether there is a secret at all."""
        return self._chain is not None

    def hash(self, body: bytes) -> str:
        """What closes a line whose bytes before `,"hash":"` are `body`."""
        if self._chain is None:
            return hashlib.sha256(body).hexdigest()
        return _mac(self._chain, body)

    def arguments(self, canonical: bytes) -> str | None:
        """A call's arguments as a keyed hash; None without a secret, since few values are too many to guess."""
        if self._arguments is None:
            return None
        return f"hmac-sha256:{_mac(self._arguments, canonical)}"


def _mac(key: bytes, body: bytes) -> str:
    """HMAC-SHA256 of RFC 2104, in hexadecimal digits.

    `hmac.digest` gives up the interpreter's lock each time, which costs twenty times as much as the hash of a record
    where another thread wants it, as the log's writer does.
    """
    padded = _padded(key)
    inner, outer = padded[0].copy(), padded[1].copy()
    inner.update(body)
    outer.update(inner.digest())
    return outer.hexdigest()


@lru_cache(maxsize=8)
def _padded(key: bytes) -> tuple[hashlib._Hash, hashlib._Hash]:
    block = key.ljust(64, b"\0")  # keys here are digests of 32 bytes
    return hashlib.sha256(bytes(b ^ 0x36 for b in block)), hashlib.sha256(bytes(b ^ 0x5C for b in block))


NO_KEY = AuditKey(UNKEYED, None, None)


class Head(NamedTuple):
    """The end of a chain: what the next line is tied to."""

    chain: str
    seq: int
    hash: str


class Line(NamedTuple):
    """The members of a line that the chain itself needs."""

    chain: str
    seq: int
    prev: str
    kid: str
    ts: str
    replica: str
    action: str
    hash: str

    @property
    def head(self) -> Head:
        """What the next line must be tied to."""
        return Head(self.chain, self.seq, self.hash)


def is_evidence(action: str) -> bool:
    """Whether a record is there so that others can be decided again: it tells of no request."""
    return action.startswith(POLICY) or action == IDENTITY


def chain_id(replica: str, started: float, salt: str) -> str:
    """Names the run of `replica` that began at `started` (seconds since the epoch); `salt` tells two of one moment apart.

    Ids of one replica sort by their beginning.
    """
    return f"{safe_replica(replica)}@{datetime.fromtimestamp(started, UTC):%Y%m%dT%H%M%S.%fZ}-{salt}"


def safe_replica(name: str) -> str:
    """A replica's name as it stands in lines: nothing in it that JSON or a file name would escape."""
    return _UNSAFE.sub("_", name)[:253] or "_"


def position(head: Head | Line) -> tuple[str, int]:
    """Sorts lines of one replica: by the beginning of their run, then by number."""
    return head.chain, head.seq


def replica_of(chain: str) -> str:
    """The replica that a chain's id names."""
    return chain.rpartition("@")[0]


def timestamp(moment: float) -> str:
    """RFC 3339 in UTC, to the millisecond."""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def canonical(arguments: Mapping[str, Any]) -> bytes:
    """What a call's arguments are hashed as: Python's `json.dumps` with sorted keys, no white space, ASCII only."""
    return _CANONICAL(arguments).encode()


def sealed(key: AuditKey, head: Head, record: bytes) -> tuple[bytes, Head]:
    """The line (without its end) that follows `head`, and the new head.

    Args:
        key: closes it.
        head: the line before; of a run's first line its own chain, 0 and the hash that it is tied to.
        record: a JSON object, compact, whose first members are `ts`, `replica` and `action`.
    """
    seq = head.seq + 1
    body = b'{"v":1,"chain":"%s","seq":%d,"prev":"%s","kid":"%s",%s' % (
        head.chain.encode(), seq, head.hash.encode(), key.kid.encode(), _printable(record)[1:-1],
    )  # fmt: skip
    made = key.hash(body)
    return b'%s,"hash":"%s"}' % (body, made.encode()), Head(head.chain, seq, made)


def _printable(record: bytes) -> bytes:
    """Escape all but printable ASCII in a JSON text."""
    if record.isascii() and b"\x7f" not in record:
        return record
    return _UNPRINTABLE.sub(_escaped, record.decode()).encode()


def _escaped(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def read_line(raw: bytes) -> Line | None:
    """The members of a line without its end; None if it is no line of this version. Nothing is verified."""
    start, end = _START.match(raw), _END.fullmatch(raw, max(0, len(raw) - _TAIL))
    if start is None or end is None or b"\n" in raw:
        return None
    chain, seq, prev, kid, ts, replica, action = [part.decode("ascii") for part in start.groups()]
    return Line(chain, int(seq), prev, kid, ts, replica, action, end[1].decode("ascii"))


def closes(key: AuditKey, raw: bytes, line: Line) -> bool:
    """Whether the line's hash is that of its bytes."""
    return hmac.compare_digest(key.hash(raw[:-_TAIL]), line.hash)
