"""Which callers get a canary's candidate: a hash of who they are, so that no replica has to remember it."""

from __future__ import annotations

import hashlib

BUCKETS = 10_000


def bucket(uid: str, issuer: str, subject: str) -> int:
    """A caller's place in the trial of this uid, 0 to 9,999: the same on every replica and after every restart.

    Each part stands with its length, so that no two callers run together.
    """
    told = "".join(f"{len(part)}:{part}" for part in (uid, issuer, subject))
    return int.from_bytes(hashlib.sha256(told.encode("utf-8", "surrogatepass")).digest()) % BUCKETS


def chosen(uid: str, share: int, issuer: str, subject: str) -> bool:
    """Whether the caller is among the `share` percent that get the candidate."""
    return bucket(uid, issuer, subject) * 100 < share * BUCKETS
