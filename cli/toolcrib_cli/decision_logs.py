"""Decision logs as files: which belong together and in which order, their lines, and what a person asks of them."""

from __future__ import annotations

import fnmatch
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO

import orjson
import yaml

from toolcrib.audit import anchors as audit_anchors
from toolcrib.audit import chain as audit_chain
from toolcrib.audit.anchors import Anchor, AnchorsError
from toolcrib.audit.chain import AuditKey, AuditKeyError
from toolcrib.audit.verification import Verification, order
from toolcrib.resources import durations
from toolcrib.telemetry import labels
from toolcrib_cli.errors import CliError, Exit
from toolcrib_registry.audit.files import rotated

STDIN = "-"
ANCHORS_KEY = "anchors.json"
_LONGEST = 8 << 20
_PAUSE = 0.2
_REVIEW = "access-review"
_POLICY = "policy"

Record = dict[str, Any]


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


def moment(text: str, now: datetime | None = None) -> str:
    """A time as records have it: RFC 3339, a date, or a duration ago such as `90m` or `7d`.

    Raises:
        CliError: it is none of these.
    """
    try:
        return audit_chain.timestamp(_instant(text, now or datetime.now(UTC)).timestamp())
    except (ValueError, OverflowError):
        raise CliError(
            f"{text!r} is not a time",
            hint="say 2027-01-31T08:00:00Z, 2027-01-31, or how long ago: 90m, 7d",
            code=Exit.USAGE,
        ) from None


def _instant(text: str, now: datetime) -> datetime:
    days = text[:-1] if text.endswith("d") else ""
    try:
        ago = timedelta(days=int(days)) if days.isdigit() else timedelta(seconds=durations.seconds(text))
    except ValueError:
        given = datetime.fromisoformat(text)
        return given if given.tzinfo else given.replace(tzinfo=UTC)
    return now - ago


@dataclass(frozen=True, slots=True)
class Filter:
    """Which records are meant; None: all. `agent` and `tool` are globs, `token` is a `jti` as it is.

    Records that only explain others (`policy.*`, `identity`) are meant where `action` names them; `policy` is all that
    state the policy.
    """

    agent: str | None = None
    tool: str | None = None
    action: str | None = None
    reason: str | None = None
    denied: bool = False
    since: str | None = None
    until: str | None = None
    token: str | None = None

    def __call__(self, record: Record) -> bool:
        """Whether it is one of them."""
        return (
            (not self.denied or record.get("allowed") is False)
            and self._of_action(record["action"])
            and (self.reason is None or record.get("reason") == self.reason)
            and (self.since is None or record["ts"] >= self.since)
            and (self.until is None or record["ts"] < self.until)
            and (self.token is None or record.get("jti") == self.token)
            and (self.agent is None or fnmatch.fnmatchcase(agent_of(record), self.agent))
            and (self.tool is None or _tool(record, self.tool))
        )

    @property
    def explains(self) -> bool:
        """Whether records that only explain others are asked for: they use no tool, so there is nothing to add up."""
        return self.action is not None and (self.action == _POLICY or audit_chain.is_evidence(self.action))

    def _of_action(self, action: str) -> bool:
        if self.action is None:
            return not audit_chain.is_evidence(action)
        return action == self.action or (self.action == _POLICY and action.startswith(audit_chain.POLICY))


def everything(record: Record) -> bool:
    """Every record is meant, those that only explain others too."""
    return True


def _tool(record: Record, pattern: str) -> bool:
    return any(_fits(name, pattern) for name in tools_of(record))


def _fits(name: str, pattern: str) -> bool:
    last = name.rpartition("/")[2]
    # agents see `read_file` where the object is called `read-file`
    return any(fnmatch.fnmatchcase(each, pattern) for each in (name, last, last.replace("-", "_")))


def stated(record: Record) -> Iterator[str]:
    """What a record of the policy begins and ends, by name."""
    for binding in record.get("bindings", ()):
        yield f"binding {'/'.join(filter(None, (binding.get('namespace'), binding.get('name'))))}"
    if ended := record.get("ended"):
        yield f"ended {', '.join(map(str, ended))}"


def tools_of(record: Record) -> list[str]:
    """The tools that a record is about: all that a load gave out, else one, or an empty name for none."""
    if (several := record.get("tools")) is not None:
        return [entry["tool"] for entry in several]
    return [str(record.get("tool") or "")]


def agent_of(record: Record) -> str:
    """Who asked, as metrics name it: `namespace/name` of a cluster's account, `issuer:subject`, or `-` for nobody."""
    subject = str(record.get("subject") or "")
    parts = subject.split(":")
    # the registry takes `system:` subjects from the cluster's issuer alone
    if len(parts) == 4 and parts[:2] == ["system", "serviceaccount"]:
        return labels.of_account(parts[2], parts[3])
    return labels.of_subject(str(record.get("issuer") or ""), subject) if subject else "-"


def count_of(record: Record) -> int:
    """For how many requests it stands."""
    return int(record.get("repeated", {}).get("count", 1))


def failure_of(record: Record) -> str | None:
    """Why what was allowed came to nothing. An access review only answers; older logs have its question as `outcome`."""
    outcome = record.get("outcome")
    return None if outcome == "ok" or record["action"] == _REVIEW else outcome


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


_TEXTS = (
    "replica",
    "issuer",
    "subject",
    "client",
    "jti",
    "tool",
    "reason",
    "outcome",
    "phase",
    "question",
    "session",
    "who",
)


def parsed(raw: bytes) -> Record | None:
    """A line as a record of any version; None if what people ask of it has other types than records have."""
    try:
        record = orjson.loads(raw)
    except ValueError:
        return None
    if not isinstance(record, dict):
        return None
    binding, repeated, lost = record.get("binding"), record.get("repeated"), record.get("lost", [])
    sound = (
        isinstance(record.get("ts"), str)
        and isinstance(record.get("action"), str)
        and all(isinstance(record.get(key), str | None) for key in _TEXTS)
        and isinstance(record.get("ms", 0), int | float)
        and _are_tools(record.get("tools", []))
        and (binding is None or _has(binding, ref=str, generation=int))
        and ("repeated" not in record or _has(repeated, count=int, since=str))
        and isinstance(lost, list)
        and all(_has(entry, count=int, action=str, reason=str) for entry in lost)
    )
    return record if sound else None


def _has(found: object, **types: type) -> bool:
    return isinstance(found, dict) and all(isinstance(found.get(key), kind) for key, kind in types.items())


def _are_tools(found: object) -> bool:
    return isinstance(found, list) and all(_has(entry, tool=str) for entry in found)


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


@dataclass(slots=True)
class Used:
    """What one agent did with one tool."""

    allowed: int = 0
    denied: int = 0
    failed: int = 0
    first: str = ""
    last: str = ""
    reasons: dict[str, int] = field(default_factory=dict)


def summary(found_records: Iterable[Record], tool: str | None = None) -> dict[tuple[str, str, str], Used]:
    """Who used what: by agent, action and tool.

    The log's own records, those that explain others, and those before a strict call do not count.

    `tool` is a glob: of records about several tools, those that it does not mean are left out.
    """
    used: defaultdict[tuple[str, str, str], Used] = defaultdict(Used)
    for record in found_records:
        action = record["action"]
        if action.startswith(audit_chain.OWN) or audit_chain.is_evidence(action):
            continue
        if record.get("phase") == "begin":
            continue
        for name in tools_of(record):
            if tool is None or _fits(name, tool):
                _count(used[agent_of(record), record["action"], name], record)
    return dict(used)


def _count(row: Used, record: Record) -> None:
    number = count_of(record)
    if record.get("allowed") is False:
        row.denied += number
    elif failure_of(record):
        row.failed += number
    else:
        row.allowed += number
    if why := record.get("reason") if record.get("allowed") is False else failure_of(record):
        row.reasons[why] = row.reasons.get(why, 0) + number
    row.first = min(row.first or record["ts"], record["ts"])
    row.last = max(row.last, record["ts"])
