"""What a shell suggests for tools, subjects and namespaces: nothing rather than late, and never an error."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import typer

from toolcrib_cli import options
from toolcrib_cli.errors import CliError

_Read = TypeVar("_Read")
WITHIN = 2.0
"""Seconds that a registry or cluster has to answer; a person waits for the suggestion."""
_MOST = 500
"""Most tools that are suggested."""


def visible_tools(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names, or ids, of the tools that the identity on the command line may see; without one, of the local mode's tools."""
    return options.matching(_visible(ctx.params), incomplete)


def visible_namespaces(ctx: typer.Context, incomplete: str) -> list[str]:
    """Namespaces of the same tools."""
    return _starting((tool.partition("/")[0] for tool in _visible(ctx.params)), incomplete)


def object_namespaces(ctx: typer.Context, incomplete: str) -> list[str]:
    """Namespaces of the running local mode's objects."""
    from toolcrib_cli.local.questions import ask

    folder = options.data_folder(ctx.params.get("data"))
    found = within(lambda: ask(folder)["objects"])
    spaces = (each["object"]["metadata"].get("namespace", "") for each in found)
    return _starting(spaces, incomplete)


def within(read: Callable[[], Iterable[_Read]]) -> list[_Read]:
    """What `read` finds; nothing if it fails or takes longer than `WITHIN`. It is then left behind in its thread."""
    found: list[list[_Read]] = []

    def run() -> None:
        with contextlib.suppress(CliError, OSError, ValueError, KeyError, TypeError):
            found.append(list(read()))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(WITHIN)
    return found[0] if found else []


def _starting(names: Iterable[str], incomplete: str) -> list[str]:
    return sorted({name for name in names if name and name.startswith(incomplete)})


def _visible(given: dict[str, Any]) -> dict[str, str]:
    """Names by ids."""
    from toolcrib_cli.local.questions import ask

    data = given.get("data")

    def seen() -> list[tuple[str, str]]:
        who = (given.get("as_"), given.get("token_file"), data, given.get("ca_file"))
        with options.registry_client(given.get("url"), *who, timeout=WITHIN) as client:
            found: list[tuple[str, str]] = []
            cursor: str | None = None
            while len(found) < _MOST:
                page = client.get("/v1/tools", limit=200, cursor=cursor)
                found += [(t["tool_id"], t["name"]) for t in page["tools"]]
                if not (cursor := page.get("next_cursor")):
                    break
            return found

    def there() -> list[tuple[str, str]]:
        objects = [each["object"] for each in ask(options.data_folder(data), kind="Tool")["objects"]]
        return [
            (f"{o['metadata']['namespace']}/{o['metadata']['name']}", o["spec"].get("name") or o["metadata"]["name"])
            for o in objects
        ]  # fmt: skip

    elsewhere = given.get("url") or given.get("as_") or given.get("token_file")
    return dict(within(seen) or ([] if elsewhere else within(there)))
