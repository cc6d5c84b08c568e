"""An issuer entry that leaves `issuer` out: the cluster's, told by the token that the kubelet has put into its pod.

kind, k3s, EKS, GKE and AKS each have an issuer of their own, and only the token says which. The token is believed
for this one name: it came from the kubelet by a file that the registry's own configuration names. Agents' tokens are
verified as ever, with the keys that the API server shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toolcrib.errors import TokenMalformed
from toolcrib.tokens.reader import MAX_TOKEN, claimed_issuer

API_SERVER_KEYS = "https://kubernetes.default.svc/openid/v1/jwks"
"""Every API server shows its signing keys here, to service accounts, also where the issuer is a cloud's address."""


def completed(entry: Any) -> Any:
    """An issuer entry of the configuration with `issuer` and `jwks_uri` filled in, where it may leave them out.

    Other entries come back as they are: their own validation says what is wrong with them.

    Raises:
        ValueError: the token file cannot be read, or holds no token that names its issuer.
    """
    if not isinstance(entry, Mapping) or entry.get("cluster") is not True or "issuer" in entry:
        return entry
    path = entry.get("token_file")
    if not isinstance(path, str):
        return entry
    filled = {**entry, "issuer": _issuer_of(path)}
    if entry.get("jwks_uri") is None and entry.get("jwks_file") is None:
        filled["jwks_uri"] = API_SERVER_KEYS
    return filled


def _issuer_of(path: str) -> str:
    remedy = "mount a service account token there, or set the issuer"
    try:
        with Path(path).open("rb") as file:
            token = file.read(MAX_TOKEN + 1).strip()
    except OSError as error:
        raise ValueError(f"token_file {path} cannot be read: {error.strerror}; {remedy}") from error
    try:
        found = claimed_issuer(token.decode("ascii"))
    except (TokenMalformed, UnicodeDecodeError):
        raise ValueError(f"token_file {path} holds no token that can be read; {remedy}") from None
    if found is None:
        raise ValueError(f"the token in token_file {path} names no issuer (iss); {remedy}")
    return found
