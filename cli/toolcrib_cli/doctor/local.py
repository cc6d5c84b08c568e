"""What the local mode shows of itself: its data folder, its manifests, and one question without a token."""

from __future__ import annotations

import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from toolcrib.lint.hidden_text import Hidden
from toolcrib.resources import KINDS
from toolcrib_cli import manifests
from toolcrib_cli.client import RegistryClient
from toolcrib_cli.doctor.facts import Facts, Object, Place
from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.local.store import read_state

SECRETS = ("issuer", "audit.key", "assertion", "local.json")
"""Files and folders of the data folder that hold keys, or say where they are."""
_TIMEOUT = 5.0


def look(folder: Path, url: str | None) -> Facts:
    """What the local mode of a data folder, or at a URL, shows.

    Raises:
        CliError: nothing is there, or it does not answer.
    """
    state = read_state(folder)
    if url is None and state is None:
        hint = "start it with `toolcrib up`, or specify --data FOLDER or --url URL"
        raise CliError(f"no local mode was started in {folder}", hint=hint, code=Exit.USAGE)
    known = state if state is not None and url in (None, state["url"]) else None
    local: dict[str, Any] = {"url": url or (state or {})["url"]}
    local["anonymous"] = _listed_without_token(local["url"])
    if known is None:
        why = f"{local['url']} is not the local mode of {folder}: specify its --data"
        return Facts(Place.LOCAL, dict.fromkeys(KINDS, why), time.time(), {**local, "unread": why})
    local |= {key: known[key] for key in ("settings", "hidden_text") if key in known}
    local["open_files"] = list(_open_files(folder))
    return Facts(Place.LOCAL, _objects([Path(p) for p in known.get("manifests", ())]), time.time(), local)


def _listed_without_token(url: str) -> int:
    try:
        with RegistryClient(url, None, timeout=_TIMEOUT) as registry:
            return len(registry.get("/")["tools"])
    except CliError as error:
        raise CliError(error.message, hint=error.hint, code=Exit.USAGE) from error


def _open_files(folder: Path) -> Iterator[str]:
    """What others may read of the folder: itself, and what holds keys."""
    if stat.S_IMODE(folder.stat().st_mode) & 0o077:
        yield str(folder)
    for name in SECRETS:
        place = folder / name
        for file in (place, *sorted(place.rglob("*"))) if place.is_dir() else (place,):
            if file.exists() and stat.S_IMODE(file.stat().st_mode) & 0o077:
                yield str(file)


def _objects(paths: list[Path]) -> dict[str, list[Object]]:
    found: dict[str, list[Object]] = {kind: [] for kind in KINDS}
    for file in manifests.files_in(path for path in paths if path.exists()):
        for item in manifests.read(file, hidden=Hidden.WARN).objects:
            if item.kind in found:
                metadata = {
                    **item.body["metadata"],
                    **({"namespace": item.namespace} if item.namespace else {}),
                }
                found[item.kind].append({**item.body, "metadata": metadata})
    return found
