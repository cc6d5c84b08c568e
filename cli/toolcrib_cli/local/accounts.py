"""Service accounts of the local mode: which names it knows, and tokens for them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.local.store import read_state


def find(folder: Path, name: str) -> tuple[str, str]:
    """(namespace, name) of the account that `name` means.

    Raises:
        CliError: a bare name that no account has, or several have.
    """
    if "/" in name:
        namespace, _, bare = name.partition("/")
        if not namespace or not bare or "/" in bare:
            raise CliError(f"not an account: {name!r}", hint="write namespace/name", code=Exit.USAGE)
        return namespace, bare
    state = read_state(folder) or {}
    known = [a for a in state.get("accounts", []) if isinstance(a, str) and a.partition("/")[2] == name]
    if len(known) == 1:
        namespace, _, bare = known[0].partition("/")
        return namespace, bare
    if known:
        raise CliError(
            f"several accounts are called {name}: {', '.join(known)}",
            hint="write namespace/name",
            code=Exit.USAGE,
        )
    raise _unknown(name, state)


def _unknown(name: str, state: Mapping[str, Any]) -> CliError:
    hint = _hint(state, name) or (
        "no manifest of the local mode names an account: add a ServiceAccount, or a binding that names one"
        if state
        else "start the local mode with `toolcrib up`, or write namespace/name"
    )
    return CliError(f"no account is called {name!r}", hint=hint, code=Exit.USAGE)


def _hint(state: Mapping[str, Any], name: str) -> str:
    """Which account may be meant, else which there are; empty: none is known."""
    from toolcrib.resources.mistakes import nearest

    everyone = [a for a in state.get("accounts", []) if isinstance(a, str)]
    meant = nearest(name.partition("/")[2] or name, (a.partition("/")[2] for a in everyone))
    if meant is not None:
        return f"did you mean {' or '.join(a for a in everyone if a.partition('/')[2] == meant)}?"
    return f"known: {', '.join(everyone[:12])}" if everyone else ""


def find_known(folder: Path, name: str) -> tuple[str, str]:
    """The same of an account that a manifest declares or a binding names; any other sees nothing.

    Raises:
        CliError: as `find`; or the local mode knows accounts, and not this one.
    """
    state = read_state(folder) or {}
    known = state.get("accounts")
    if "/" in name and known and name not in known:
        namespace, bare = find(folder, name)
        raise _unknown(f"{namespace}/{bare}", state)
    return find(folder, name)


def client_secret(folder: Path, name: str) -> str:
    """The secret with which the account gets tokens at `/oauth/token`; made at first use.

    Raises:
        CliError: the account is not known, or the folder's secrets cannot be used.
    """
    from toolcrib_registry.identity.issuer import LocalIssuer

    namespace, bare = find(folder, name)
    try:
        return LocalIssuer.open(folder / "issuer", time.time).client_secret(namespace, bare)
    except (OSError, ValueError) as error:
        raise CliError(str(error), code=Exit.USAGE) from error


def mint(folder: Path, name: str, *, scopes: str | None = None, ttl: float = 3600.0) -> str:
    """A token of the local issuer.

    Args:
        folder: the data folder.
        name: an account; with `scopes` any name.
        scopes: None: bindings decide. Else the token's scopes alone decide, and an empty text grants nothing.
        ttl: seconds.

    Raises:
        CliError: the account is not known, or the folder's key cannot be used.
    """
    from toolcrib_registry.identity.issuer import LocalIssuer

    if not folder.is_dir():
        raise CliError(
            f"no data folder at {folder}", hint="start the local mode first: `toolcrib up`", code=Exit.USAGE
        )
    namespace: str | None
    if scopes is None or "/" in name:
        namespace, name = find(folder, name)
    else:
        try:
            namespace, name = find(folder, name)
        except CliError:
            namespace = None
    try:
        issuer = LocalIssuer.open(folder / "issuer", time.time)
        return issuer.mint(namespace, name, scopes=scopes, ttl=ttl)
    except (OSError, ValueError) as error:
        raise CliError(str(error), code=Exit.USAGE) from error
