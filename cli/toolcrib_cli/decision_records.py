"""Records of decision logs: what each says, which are meant, and what they add up to."""

from __future__ import annotations

import fnmatch
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from toolcrib.audit import chain as audit_chain
from toolcrib.resources import durations
from toolcrib.telemetry import labels
from toolcrib_cli.errors import CliError, Exit

_REVIEW = "access-review"
_POLICY = "policy"
Record = dict[str, Any]


def moment(text: str, now: datetime | None = None) -> str:
    """A time as records have it: RFC 3339, a date, or a duration ago such as `90m` or `7d`.

    Raises:
        CliError: it is in another form.
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
