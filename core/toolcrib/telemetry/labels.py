"""The one name of an identity in metrics, logs and audit queries. No two identities share one.

A service account of the cluster is `namespace/name`. Everybody else is `issuer:subject`. Names in Kubernetes hold no
colon, and the subject's own colons are escaped, so neither kind can look like the other and the last colon always
separates issuer and subject.
"""

from __future__ import annotations

import hashlib
from urllib.parse import quote

LONGEST = 256
"""Characters of a label at most."""
_DIGITS = 16
_PLAIN = "/|@+=,!$&*();?"
"""What stands unescaped in a label besides letters, digits and `_.-~`: neither the colon nor the mark of a cut."""
_CUT = "#"


def of_account(namespace: str, name: str) -> str:
    """`namespace/name`, at most LONGEST characters."""
    return bounded(f"{namespace}/{name}")


def of_subject(issuer: str, subject: str) -> str:
    """`issuer:subject`, at most LONGEST characters; what is no plain ASCII in the subject is percent-encoded."""
    return bounded(f"{issuer}:{quote(subject, safe=_PLAIN, errors='surrogatepass')}")


def bounded(label: str) -> str:
    """`label`, or its beginning, `#` and 16 hexadecimal digits of its SHA-256 where it is longer than LONGEST."""
    if len(label) <= LONGEST:
        return label
    digest = hashlib.sha256(label.encode(errors="surrogatepass")).hexdigest()[:_DIGITS]
    return f"{label[: LONGEST - _DIGITS - 1]}{_CUT}{digest}"
