"""What a decision log says of the bindings: read once, verified and replayed together. Decides nothing by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from toolcrib.audit.anchors import Anchor
from toolcrib.audit.chain import AuditKey
from toolcrib.audit.replay import Replay, Why
from toolcrib.audit.suggestions import Suggestion, otherwise, suggest
from toolcrib.audit.uses import Uses
from toolcrib.audit.verification import Report, Verification
from toolcrib.authorizer import Action
from toolcrib.snapshot import Snapshot
from toolcrib.wire.publish import PublishedBinding
from toolcrib_cli import decision_logs, decision_records


@dataclass(slots=True)
class _Replica:
    """One replica's log while it goes by."""

    replay: Replay = field(default_factory=Replay)
    begun: bool = False
    """The period has begun in it."""
    first: str = ""
    last: str = ""


class Reading(Verification):
    """Verifies lines and takes from them what a suggestion rests on.

    Attributes:
        uses: what calls of the period needed.
        starts: the policy when the period began, of each replica whose log covers that moment.
        missing: allowed calls of the period that are not decided again, and what may be one, by the reason.
        different: decisions of the period that come out otherwise than they were recorded.
    """

    def __init__(self, since: str, keys: Iterable[AuditKey], anchors: Iterable[Anchor]) -> None:
        super().__init__(keys, anchors)
        self.since = since
        self.uses = Uses()
        self.starts: list[Snapshot] = []
        self.missing: Counter[str] = Counter()
        self.different = 0
        self._logs: dict[str, _Replica] = {}
        self._summed: set[tuple[str, str]] = set()

    def line(self, file: str, number: int, raw: bytes) -> None:
        """The next line of a file, without its end."""
        super().line(file, number, raw)
        record = decision_records.parsed(raw)
        if record is None:
            self.missing[Why.UNREADABLE.value] += 1
            return
        name = str(record.get("replica", ""))
        log = self._logs.setdefault(name, _Replica())
        ts = str(record["ts"])
        if not log.begun and ts >= self.since:
            log.begun = True
            if log.first and (policy := log.replay.policy) is not None:
                self.starts.append(policy)
        log.first, log.last = log.first or ts, max(ts, log.last)
        for judged in log.replay.take(record):
            # a clock that was set back does not end the period
            if not log.begun or record.get("phase") == "begin":
                continue
            if judged.why is not None:
                self._not_replayed(record, judged.why.value, ts)
                continue
            self.different += judged.different
            self.uses.add(judged)

    def _not_replayed(self, record: decision_records.Record, why: str, ts: str) -> None:
        if record["action"] != Action.CALL.value:
            return
        if record.get("allowed") is True:
            if "repeated" in record and record.get("tool"):
                self._summed.add((decision_records.agent_of(record), str(record["tool"])))
            else:
                self.missing[why] += 1
        elif tool := record.get("tool"):
            agent, times = decision_records.agent_of(record), decision_records.count_of(record)
            self.uses.refuse(tool, str(record.get("reason")), agent, ts, times)

    @property
    def alone(self) -> set[tuple[str, str]]:
        """Agents and tools of sums of allowed calls of which no single one is recorded."""
        return self._summed - {(need.agent, need.tool) for need in self.uses.needs}

    @property
    def end(self) -> Snapshot | None:
        """The latest policy of all."""
        for log in sorted(self._logs.values(), key=lambda log: log.last, reverse=True):
            if (policy := log.replay.policy) is not None:
                return policy
        return None

    @property
    def begins(self) -> str:
        """When the log begins."""
        return min((log.first for log in self._logs.values()), default="")


@dataclass(frozen=True, slots=True)
class Suggested:
    """What a log supports.

    Attributes:
        reading: of it.
        report: of its verification.
        lacks: why nothing can be suggested; empty: something can.
        suggestions: what replays without a change.
        withheld: what would change a decision of the log; always empty, unless a suggestion is wrong.
    """

    reading: Reading
    report: Report
    lacks: tuple[str, ...]
    suggestions: tuple[Suggestion, ...] = ()
    withheld: tuple[Suggestion, ...] = ()


def suggested(
    files: list[str],
    since: str,
    keys: Iterable[AuditKey],
    anchors: Iterable[Anchor],
    wanted: str | None = None,
) -> Suggested:
    """Read the log, and suggest smaller bindings where it is whole for the period.

    Args:
        files: in their order.
        since: when the period begins, as records have times.
        keys: of the chains.
        anchors: of the ends.
        wanted: a binding; None: all.

    Raises:
        LookupError: there is no such binding; the argument lists those of that name.
    """
    reading = Reading(since, keys, anchors)
    decision_logs.feed(reading, files)
    report = reading.finish()
    end, lacks = reading.end, tuple(_lacks(reading, report))
    if lacks or end is None:
        return Suggested(reading, report, lacks)
    only = None if wanted is None else [_binding(wanted, end).uid]
    found = suggest(reading.uses, reading.starts, end, only)
    changed = otherwise(found, reading.uses.questions)
    return Suggested(reading, report, (), () if changed else found, found if changed else ())


def _lacks(reading: Reading, report: Report) -> Iterable[str]:
    if not report.records:
        yield "it has no record"
        return
    for finding in report.findings[:5]:
        yield f"{finding.where}: {finding.message}"
    if len(report.findings) > 5:
        yield f"{len(report.findings) - 5} further findings: see `toolcrib audit verify`"
    if report.lost:
        yield f"{sum(report.lost.values())} records were lost, as the log itself says ({', '.join(sorted(report.lost))})"
    if not reading.starts:
        yield f"it begins at {reading.begins}, so the policy at {reading.since} is not known"
    if reading.end is None:
        yield "it does not state the policy at its end"
    if reading.missing:
        reasons = ", ".join(f"{count} {why}" for why, count in sorted(reading.missing.items()))
        yield f"{sum(reading.missing.values())} records of calls cannot be decided again ({reasons})"
    if alone := sorted(reading.alone):
        yield f"of {' and '.join(alone[0])} it has sums of calls, and no single one"
    if reading.different:
        yield f"{reading.different} decisions come out otherwise when they are made again: see `toolcrib audit replay`"


def _binding(wanted: str, end: Snapshot) -> PublishedBinding:
    """`name`, `namespace/name` or `Kind/namespace/name`."""
    fits = [
        b
        for b in end.bindings.values()
        if wanted in ("/".join(filter(None, parts)) for parts in _names(b)) or wanted == b.name
    ]
    if len(fits) != 1:
        raise LookupError(sorted(b.ref for b in fits))
    return fits[0]


def _names(b: PublishedBinding) -> tuple[tuple[str | None, ...], ...]:
    return (b.namespace, b.name), (b.kind, b.namespace, b.name)
