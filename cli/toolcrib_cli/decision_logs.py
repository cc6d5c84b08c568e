"""Decision logs as files: which belong together and in which order, and their lines."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import yaml

from toolcrib.audit import anchors as audit_anchors
from toolcrib.audit import chain as audit_chain
from toolcrib.audit.anchors import Anchor, AnchorsError
from toolcrib.audit.chain import AuditKey, AuditKeyError
from toolcrib.audit.verification import Verification, order
from toolcrib_cli.decision_records import Filter, Record, parsed
from toolcrib_cli.errors import CliError, Exit
from toolcrib_registry.audit.files import rotated

STDIN = "-"
ANCHORS_KEY = "anchors.json"
_LONGEST = 8 << 20
_PAUSE = 0.2


def found(places: Iterable[str]) -> list[str]:
    """The files that are meant, in the order of their content.

    A file stands for the rotated ones beside it, too; a folder for every `.jsonl` and `.log` file below it; `-` for standard
    input.

    Raises:
        CliError: there is nothing of that name, or nothing in it, or it is a pipe or a device, which may never end.
    """
    files: dict[str, None] = {}
    for place in places:
        path = Path(place)
        if place == STDIN:
            files[place] = None
        elif path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.suffix in (".jsonl", ".log") and p.is_file())
            files |= dict.fromkeys(map(str, inside))
        elif path.is_file():
            files |= dict.fromkeys(map(str, (*rotated(path), path)))
        elif path.exists():
            raise CliError(
                f"{place} is not a file", hint="specify - and pass it as standard input", code=Exit.USAGE
            )
        else:
            hint = "specify a file, a folder, or - for standard input"
            raise CliError(f"there is no decision log {place}", hint=hint, code=Exit.USAGE)
    if not files:
        raise CliError(
            f"there is no decision log in {', '.join(places)}",
            hint="specify the folder of the setting audit.file, a file, or - for standard input",
            code=Exit.USAGE,
        )
    return order((name, None if name == STDIN else _first(name)) for name in files)


def _first(name: str) -> bytes | None:
    with _opened(name) as file:
        return file.readline(_LONGEST).rstrip(b"\n") or None


def _opened(name: str) -> BinaryIO:
    if name == STDIN:
        return sys.stdin.buffer
    try:
        return open(name, "rb", buffering=1 << 20)
    except OSError as error:
        raise CliError(
            f"cannot read {name}: {error.strerror}",
            hint="specify a log file or folder that you may read, or - for standard input",
            code=Exit.USAGE,
        ) from error


def feed(check: Verification, files: Iterable[str], *, mixed: bool = False) -> None:
    """Give every line to a verification.

    Args:
        check: takes them.
        files: in their order.
        mixed: lines that are no records at all belong to others and are passed over.
    """
    for name in files:
        with _opened(name) as file:
            for number, raw in enumerate(file, 1):
                if not raw.endswith(b"\n"):
                    raw += _rest(file)
                line = raw.removesuffix(b"\n")
                if mixed and audit_chain.read_line(line) is None:
                    continue
                if raw.endswith(b"\n"):
                    check.line(name, number, line)
                else:
                    check.torn(name, number, len(raw))


def _rest(file: BinaryIO) -> bytes:
    """What a registry that is writing just now still adds to a line."""
    time.sleep(_PAUSE)
    return file.readline()


def keys(files: Iterable[str]) -> list[AuditKey]:
    """The keys of secret files.

    Raises:
        CliError: one cannot be read, or is no key.
    """
    made = []
    for name in files:
        try:
            made.append(AuditKey.of(Path(name).read_bytes()))
        except OSError as error:
            raise CliError(
                f"cannot read the key file {name}: {error.strerror}",
                hint="specify --key-file with the key of this log; a cluster has it in the Secret toolcrib-audit-key",
                code=Exit.USAGE,
            ) from error
        except AuditKeyError as error:
            raise CliError(f"{name}: {error}", code=Exit.USAGE) from error
    return made


def anchors(text: str, source: str) -> list[Anchor]:
    """The anchors of a document, or of a ConfigMap as kubectl prints it (JSON or YAML).

    Raises:
        CliError: it holds none.
    """
    try:
        document = yaml.safe_load(text) if "ConfigMap" in text else None
        if isinstance(document, dict) and document.get("kind") == "ConfigMap":
            held = document.get("data")
            text = str(held.get(ANCHORS_KEY, "")) if isinstance(held, dict) else ""
        return audit_anchors.read(text)
    # what YAML makes of a text may also be a date that does not exist, or be nested too deep
    except (AnchorsError, yaml.YAMLError, ValueError, RecursionError) as error:
        raise CliError(
            f"{source} holds no anchors of decision logs",
            hint="specify the operator's ConfigMap, as in --anchors configmap/toolcrib-system/toolcrib-audit-anchors",
            code=Exit.USAGE,
        ) from error


@dataclass(slots=True)
class Passed:
    """How many lines were passed over, since they are no records."""

    lines: int = 0


def records(
    files: Iterable[str], wanted: Callable[[Record], bool], passed: Passed | None = None
) -> Iterator[Record]:
    """The records that are wanted, one file after the other; lines that are none are counted in `passed`."""
    for name in files:
        with _opened(name) as file:
            for raw in file:
                record = parsed(raw)
                if record is None:
                    if passed is not None:
                        passed.lines += 1
                elif wanted(record):
                    yield record


def followed(name: str, wanted: Filter) -> Iterator[Record]:
    """The records that a log's file gets from now on, also after it was rotated; never ends."""
    file = _opened(name)
    file.seek(0, os.SEEK_END)
    buffer = b""
    try:
        while True:
            buffer += file.readline()
            if buffer.endswith(b"\n"):
                if (record := parsed(buffer)) is not None and wanted(record):
                    yield record
                buffer = b""
            elif not buffer and (new := _replaced(name, file)) is not None:
                file.close()
                file = new
            else:
                time.sleep(_PAUSE)
    finally:
        file.close()


def _replaced(name: str, file: BinaryIO) -> BinaryIO | None:
    """The file that has taken the place of this one, once all of this one has been read."""
    try:
        there = os.stat(name)
    except FileNotFoundError:
        return None
    here = os.fstat(file.fileno())
    if (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino) or file.tell() < here.st_size:
        return None
    return _opened(name)
