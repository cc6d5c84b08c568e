"""Calls while a name server loses packets: a real server on loopback in /etc/resolv.conf, in namespaces of their own."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import lost_packets
import name_server
from lost_packets import CALLERS
from name_server import A
from realparts.processes import clean_environment
from toolcrib_registry.adapters.outbound.cares import UNPROVEN

pytestmark = pytest.mark.real

LATEST = 1.2
"""Seconds that a lost packet may cost a call."""
SLACK = 1.3
"""What a busy machine may add."""


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    made = name_server.within(tmp_path_factory.mktemp("names"))
    support = Path(lost_packets.__file__)
    done = subprocess.run(
        [*made, sys.executable, str(support)],
        capture_output=True,
        text=True,
        env=clean_environment({"PYTHONPATH": str(support.parent)}),
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def of(calls: list[dict[str, Any]], key: str) -> set[Any]:
    return {one[key] for one in calls}


def names(case: dict[str, Any]) -> list[str]:
    return [one["name"] for one in case["asked"] if one["kind"] == A]


def test_one_lookup_serves_all_who_wait_for_a_name(cases: dict[str, Any]) -> None:
    case = cases["nothing lost"]
    assert of(case["calls"][0], "problem") == {""}
    assert len(case["calls"][0]) == CALLERS
    assert names(case) == ["well.example.test"]


def test_a_lost_packet_delays_no_call_by_more_than_the_second_try(cases: dict[str, Any]) -> None:
    case = cases["one lost"]
    assert of(case["calls"][0], "problem") == {""}
    assert max(of(case["calls"][0], "seconds")) < LATEST + SLACK
    assert len(names(case)) == 2, "a second try"
    assert case["asked"][-1]["at"] - case["asked"][0]["at"] < LATEST + SLACK


def test_a_name_server_that_is_silent_fails_calls_soon_and_is_left_alone_for_a_while(
    cases: dict[str, Any],
) -> None:
    case = cases["all lost"]
    first, second = case["calls"]
    assert of(first, "problem") == {
        "the host's name cannot be resolved: the name server did not respond within 1 s"
    }
    assert max(of(first, "seconds")) < LATEST + SLACK
    assert of(second, "problem") == of(first, "problem")
    assert names(case) == ["all.example.test"] * 2, "two tries for all 32 calls"


def test_names_that_are_never_answered_hold_a_bounded_number_of_sockets(cases: dict[str, Any]) -> None:
    case = cases["others lost"]
    good, silent = case["calls"]
    assert of(good, "problem") == {""}
    assert "" not in of(silent, "problem")
    assert max(of(silent, "seconds")) < LATEST + SLACK
    assert len(silent) > 2 * UNPROVEN
    assert case["sockets"] < UNPROVEN + 16


def test_a_name_that_does_not_exist_is_asked_for_once(cases: dict[str, Any]) -> None:
    case = cases["absent"]
    assert of(case["calls"][0], "problem") == {
        "the host's name cannot be resolved: the name does not exist or has no address"
    }
    assert names(case) == ["absent.example.test"]


def test_names_without_a_final_dot_are_found_as_the_system_would(cases: dict[str, Any]) -> None:
    case = cases["names"]
    assert "127.0.0.1" in case["found"].pop("localhost")
    assert case["found"] == {
        "in-hosts.corp": ["127.0.0.9"],
        "short": ["127.0.0.3"],
        "one.two.three": ["127.0.0.4"],
    }
    assert case["asked"] == ["short.example.test", "one.two.three"], "neither is asked of a server"
