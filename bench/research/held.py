"""The development requests that the packaged model was never trained on: only they tell how good it is.

About an eighth of each set, by a hash of the text, the same in every run and on every machine.
"""

from __future__ import annotations

import hashlib

SHARE = 0.12


def is_held(text: str, share: float = SHARE) -> bool:
    """Whether `bench/research/train.py` leaves this request out."""
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) / 16**8 < share
