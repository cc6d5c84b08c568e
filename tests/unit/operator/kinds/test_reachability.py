"""The condition BackendReachable changes when a result is no chance, and never because nobody knows."""

from dataclasses import replace
from typing import Any

import pytest

from published import tool as published_tool
from toolcrib.resources.conditions import MEANINGS, ConditionReason
from toolcrib.wire.backends import PublishedBackend
from toolcrib.wire.probes import BackendProbe, ProbeOutcome, backend_key
from toolcrib.wire.publish import PublishedTool
from toolcrib_operator.kinds.reachability import BACKEND_REACHABLE, DISABLED, OFF, observed, probed, told
from toolcrib_operator.kinds.records import Record
from toolcrib_operator.kinds.verdicts import Cause, Reached
from toolcrib_operator.objects import Entry, Ref
from toolcrib_operator.packing import packed_status

URL = PublishedBackend(url="https://api.example.com/v1")
REF = Ref("Tool", "heist/fx")
UP = Reached(True, Cause(ConditionReason.CONNECTED, "up"))
DOWN = Reached(False, Cause(ConditionReason.REFUSED, "down"))


def tool(backend: PublishedBackend | None = URL, **fields: Any) -> PublishedTool:
    return published_tool("heist/fx", backend=backend, **fields)


def written(reached: Reached | None, *, route: str | None = None) -> Entry:
    """A Tool whose status tells this."""
    if reached is None:
        return Entry(REF)
    status = {True: "True", False: "False", None: "Unknown"}[reached.value]
    row = {
        "type": BACKEND_REACHABLE, "status": status, "reason": reached.cause.reason.value,
        "message": reached.cause.message,
    }  # fmt: skip
    said = {"routeDigest": route or tool().route_digest, "conditions": [row]}
    return Entry(REF, said=packed_status(said))


def says(
    entry: Entry, seen: Reached, record: Record | None = None, now: float = 0.0, settle: float = 0.0
) -> Reached:
    return told(entry, tool(), seen, record or Record(REF), now, settle=settle)[0]


def test_what_is_seen_first_of_a_backend_is_told_at_once() -> None:
    once = replace(DOWN, settled=False)

    assert says(written(None), once) == once
    assert says(written(Reached(None, Cause(ConditionReason.NOT_PROBED))), once) == once
    assert says(written(UP, route="another"), once) == once, "the tool calls another backend now"


def test_one_other_result_is_not_told_and_two_are() -> None:
    assert says(written(UP), replace(DOWN, settled=False)) == UP
    assert says(written(UP), DOWN) == DOWN
    assert says(written(DOWN), replace(UP, settled=False)) == DOWN


def test_another_reason_for_being_away_needs_two_results_as_well() -> None:
    slow = Reached(False, Cause(ConditionReason.TIMED_OUT))

    assert says(written(DOWN), replace(slow, settled=False)) == DOWN
    assert says(written(DOWN), slow) == slow


def test_the_first_probe_of_a_service_that_the_registry_finds_elsewhere_counts_at_once() -> None:
    empty = Reached(False, Cause(ConditionReason.NO_READY_ENDPOINTS))

    assert says(written(empty), replace(UP, settled=False)) == replace(UP, settled=False)


def test_that_nobody_knows_is_no_reason_to_forget_what_was_known() -> None:
    waiting = probed(BackendProbe(backend="https://api.example.com"))

    assert says(written(UP), waiting) == UP
    assert says(written(None), waiting).cause.reason is ConditionReason.NOT_PROBED
    assert says(written(UP), OFF) == OFF, "where probing is off the condition says so"


def test_what_endpoint_slices_say_must_last() -> None:
    gone = Reached(False, Cause(ConditionReason.NO_READY_ENDPOINTS))
    entry, record = written(UP), Record(REF)

    assert told(entry, tool(), gone, record, 100.0, settle=5) == (UP, 105.0)
    assert told(entry, tool(), gone, record, 103.0, settle=5) == (UP, 105.0)
    assert told(entry, tool(), UP, record, 104.0, settle=5) == (UP, None), "it came back in time"
    assert told(entry, tool(), gone, record, 104.5, settle=5) == (UP, 109.5)
    assert told(entry, tool(), gone, record, 109.5, settle=5) == (gone, None)
    assert told(entry, tool(), gone, record, 109.6, settle=5) == (gone, None), (
        "planned again while it is written"
    )


def test_each_outcome_has_a_reason_and_a_message_of_its_own_that_names_the_place() -> None:
    found = {o: probed(BackendProbe(backend="heist/fx", place="a.test:443", outcome=o)) for o in ProbeOutcome}

    assert len({r.cause.reason for r in found.values()}) == len(ProbeOutcome)
    assert {o for o, r in found.items() if r.value} == {ProbeOutcome.CONNECTED}
    for outcome, reached in found.items():
        assert reached.cause.reason in MEANINGS
        assert ("heist/fx" if outcome is ProbeOutcome.NO_ADDRESS else "a.test:443") in reached.cause.message


def test_a_probe_is_asked_before_endpoints_and_endpoints_before_a_registry_that_knows_no_address() -> None:
    ready = Reached(True, Cause(ConditionReason.ENDPOINTS_READY))
    service = tool(PublishedBackend(service_namespace="heist", service_name="fx", service_port=80))
    moved = BackendProbe(backend="heist/fx", outcome=ProbeOutcome.REFUSED, settled=True)
    unknown = BackendProbe(backend="heist/fx", outcome=ProbeOutcome.NO_ADDRESS, settled=True)

    assert observed(service, ready, None, probing=True) is ready
    assert observed(service, ready, unknown, probing=True) is ready
    assert observed(service, ready, moved, probing=True) == probed(moved), (
        "the registry's settings move the Service"
    )
    assert observed(service, None, unknown, probing=True) == probed(unknown)


def test_a_tool_without_a_backend_has_no_such_condition() -> None:
    assert observed(tool(None), None, None, probing=True) is None
    assert observed(tool(), None, None, probing=False) is OFF
    assert observed(tool(state="Disabled"), None, None, probing=True) is DISABLED


@pytest.mark.parametrize(
    ("backend", "key"),
    [
        (PublishedBackend(url="https://API.example.com/v1?x=1"), "https://api.example.com"),
        (PublishedBackend(url="http://127.0.0.1:8080"), "http://127.0.0.1:8080"),
        (PublishedBackend(url="http://[::1]:80/x"), "http://[::1]:80"),
        (PublishedBackend(service_namespace="a", service_name="b", service_port=1), "a/b"),
        (None, None),
    ],
)
def test_a_backend_is_named_by_its_origin_or_its_service(
    backend: PublishedBackend | None, key: str | None
) -> None:
    assert backend_key(backend) == key
