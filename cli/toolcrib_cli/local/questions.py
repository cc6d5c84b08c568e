"""What a command asks of the running local mode: apart from the answers (`objects`), so that it loads no server part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from toolcrib_cli.client import RegistryClient
from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.local.listener import LocalRegistry
from toolcrib_cli.local.store import read_running

PATH = "/local/objects"
DECISIONS = "/local/approvals"
CALLS = "/local/calls"


def ask(folder: Path, **asked: Any) -> dict[str, Any]:
    """What the running local mode of a data folder answers.

    Raises:
        CliError: none runs there, or what answers is another.
    """
    return _answered(folder, lambda client: client.get(PATH, **asked))


def decide(folder: Path, decision: Mapping[str, Any]) -> None:
    """Approve or reject a tool: `{tool, digest}`, with `reject` the reason.

    Raises:
        CliError: as `ask`; or it cannot be: the tool is another by now, or its manifest holds the approval.
    """
    _answered(folder, lambda client: client.post(DECISIONS, decision))


def calls(folder: Path) -> list[dict[str, Any]]:
    """The calls that wait for confirmation. Errors as `ask`."""
    found: list[dict[str, Any]] = _answered(folder, lambda client: client.get(CALLS))["calls"]
    return found


def decide_call(folder: Path, decision: Mapping[str, Any]) -> None:
    """Confirm or reject a call: `{id, decision}`.

    Raises:
        CliError: as `ask`; or it waits no more.
    """
    _answered(folder, lambda client: client.post(CALLS, decision))


def _answered(folder: Path, ask: Callable[[RegistryClient], Any]) -> dict[str, Any]:
    state = read_running(folder)
    if state is not None and isinstance(key := state.get("key"), str):
        try:
            with RegistryClient(state["url"], key, greet=LocalRegistry(folder).greet) as client:
                found: dict[str, Any] = ask(client)
                return found
        except CliError as error:
            if error.code not in (Exit.UNREACHABLE, Exit.NOT_PERMITTED):
                raise
    hint = "start one with `toolcrib up --manifests FOLDER`; in a cluster use `kubectl get toolcrib -A`"
    raise CliError(f"no local mode runs in {folder}", hint=hint, code=Exit.UNREACHABLE)
