"""An entry in somebody's configuration: everything else stays, or nothing is written."""

from __future__ import annotations

import copy
import json
import re
import secrets
import stat
import tomllib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.local.store import write_durably
from toolcrib_cli.mcp_clients.entries import HOLDER, Client, toml_table

_BY_HAND = "paste the entry by hand: without --write the command prints it"
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class Written:
    """What `write` did."""

    def __init__(self, file: Path, backup: Path | None, changed: bool) -> None:
        self.file = file
        self.backup = backup
        self.changed = changed


def write(file: Path, client: Client, name: str, entry: dict[str, Any]) -> Written:
    """Put the entry into the file, atomically and with mode 0600; what was there before is kept beside it.

    Raises:
        CliError: it is no regular file, or cannot be read, parsed or written. It is as it was.
    """
    try:
        target = _regular(file)
        before = target.read_bytes() if target.exists() else None
        made = with_entry(before or b"", client, name, entry, str(file))
        if made == before:
            return Written(target, None, False)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        backup = None
        if before is not None:
            backup = target.with_name(f"{target.name}.{datetime.now(UTC):%Y%m%dT%H%M%S%f}.bak")
            write_durably(backup, before.decode())
        if (target.read_bytes() if target.exists() else None) != before:
            raise CliError(
                f"{file} was changed by another program at the same time", hint="run the command again"
            )
        write_durably(target, made.decode())
    except OSError as error:
        raise CliError(f"cannot write {file}: {error.strerror}", hint=_BY_HAND, code=Exit.USAGE) from error
    return Written(target, backup, True)


def _regular(file: Path) -> Path:
    """Where the file is, which may not exist yet: links are followed, so that a file that is a link stays one.

    Raises:
        CliError: it is something else than a regular file. A device would be replaced, a pipe waited for.
    """
    try:
        given = file.expanduser()
    except RuntimeError:
        raise CliError(
            f"cannot write {file}: no such user", hint="specify the path without ~", code=Exit.USAGE
        ) from None
    try:
        kind = stat.S_IFMT(given.stat().st_mode)
    except FileNotFoundError:
        kind = stat.S_IFREG
    if kind != stat.S_IFREG:
        raise CliError(
            f"cannot write {file}: it is {_KINDS.get(kind, 'no file')}",
            hint=f"specify a regular file with --file, or {_BY_HAND}",
            code=Exit.USAGE,
        )
    return given.resolve()


def with_entry(before: bytes, client: Client, name: str, entry: dict[str, Any], shown: str) -> bytes:
    """The content of a configuration with the entry in it.

    Raises:
        CliError: the content cannot be parsed, or could not be kept.
    """
    edit: Callable[[str, str, str, dict[str, Any]], str] = _toml if client is Client.CODEX else _json
    try:
        text = before.decode()
        lines = text.replace("\r\n", "\n")
        made = (
            edit(lines, HOLDER[client], name, entry)
            if lines.strip()
            else edit("", HOLDER[client], name, entry)
        )
        return (made.replace("\n", "\r\n") if "\r\n" in text else made).encode()
    except (ValueError, RecursionError) as error:
        raise CliError(f"{shown} was not changed: {error}", hint=_BY_HAND, code=Exit.USAGE) from error


def _json(text: str, holder: str, name: str, entry: dict[str, Any]) -> str:
    def unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        if len({key for key, _ in pairs}) != len(pairs):
            raise ValueError("it has a duplicate key")
        return dict(pairs)

    def constant(written: str) -> None:
        raise ValueError(f"{written} is not JSON")

    # numbers go back as they are written: Python's would be rounded (1e400, 0.10) or refused (5,000 digits)
    numbers: list[str] = []
    mark = f"\0{secrets.token_hex(8)}:"

    def number(written: str) -> str:
        numbers.append(written)
        return f"{mark}{len(numbers) - 1}"

    hooks: dict[str, Any] = {
        "object_pairs_hook": unique,
        "parse_int": number,
        "parse_float": number,
        "parse_constant": constant,
    }
    try:
        config = json.loads(text, **hooks) if text else {}
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not plain JSON, perhaps because of comments ({error})") from error
    servers = config.setdefault(holder, {}) if isinstance(config, dict) else None
    if not isinstance(servers, dict):
        raise ValueError(f"its {holder} is not an object; correct it, or paste the block by hand")
    if servers.get(name) == entry:
        return text
    servers[name] = entry
    found = re.search(r"^([ \t]+)\S", text, re.MULTILINE)
    indent = found.group(1) if found else "  "
    made = json.dumps(config, indent=indent, ensure_ascii=False, allow_nan=False) + "\n"
    return re.sub(
        f'"{re.escape(json.dumps(mark)[1:-1])}([0-9]+)"', lambda found: numbers[int(found[1])], made
    )


def _toml(text: str, holder: str, name: str, entry: dict[str, Any]) -> str:
    try:
        config = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"it is not TOML ({error})") from error
    expected = copy.deepcopy(config)
    servers = expected.setdefault(holder, {})
    if not isinstance(servers, dict):
        raise ValueError(f"its {holder} is not a table")
    if servers.get(name) == entry:
        return text
    servers[name] = entry
    made = _replaced(text, holder, name, toml_table(name, entry))
    # lines were edited without a parser: what counts is what a parser makes of them
    try:
        kept = tomllib.loads(made) == expected
    except tomllib.TOMLDecodeError:
        kept = False
    if not kept:
        raise ValueError("adding the entry would change something else")
    return made


def _replaced(text: str, holder: str, name: str, table: str) -> str:
    """The lines with the table and its sub-tables exchanged for `table`, or with `table` at the end."""
    own = re.compile(rf"\s*\[\s*{holder}\s*\.\s*[\"']?{re.escape(name)}[\"']?\s*[.\]]")
    kept: list[str] = []
    held: list[str] = []
    place: int | None = None
    inside = False
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith("["):
            inside = own.match(line) is not None
            if inside and place is None:
                place = len(kept) + len(held)
        if inside and line.strip() and not line.lstrip().startswith("#"):
            held.clear()
        elif inside:
            held.append(line)  # blank lines and comments before the next table are that one's
        else:
            kept += [*held, line]
            held.clear()
    kept += held
    if place is None:
        end = "" if not kept else "\n" if kept[-1].endswith("\n") else "\n\n"
        return "".join(kept) + end + table
    return "".join([*kept[:place], table, *kept[place:]])
