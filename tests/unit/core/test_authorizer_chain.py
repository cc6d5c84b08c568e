"""The chain of checks: one entry adds a check everywhere, and an entry in the wrong place starts nothing."""

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import one_more_check
import toolcrib
from toolcrib.authorizer import CHECKS, Order, Reason, chain

pytestmark = pytest.mark.guarantee

PACKAGE = Path(toolcrib.__file__).parent
TOOL_SET_ASIDE = """
    SET_ASIDE = (
        "set_aside",
        "Somebody set the tool aside.",
        Order.TOOL,
        lambda q: Decision(False, Reason.SET_ASIDE) if q.tool and "set-aside" in q.tool.tags else None,
    )
"""
CALLER_SET_ASIDE = """
    SET_ASIDE = (
        "set_aside",
        "Somebody set the agent aside.",
        Order.IDENTITY,
        lambda q: Decision(False, Reason.SET_ASIDE)
        if q.identity.subject.endswith(":set-aside") and q.now < 1_900_000_000
        else None,
    )
"""


def with_entry(folder: Path, entry: str, after: Reason) -> Path:
    """The core's folder, copied, with one more entry in `Reason`."""
    shutil.copytree(
        PACKAGE, folder / "toolcrib"
    )  # with what is compiled of it: only the changed file is compiled
    file = folder / "toolcrib" / Path(chain.__file__).relative_to(PACKAGE)
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    table = next(n for n in ast.parse("".join(lines)).body if getattr(n, "name", "") == "Reason")
    assert isinstance(table, ast.ClassDef)
    assigned = [n for n in table.body if isinstance(n, ast.Assign)]
    before = next(n for n in assigned if ast.unparse(n.targets[0]) == after.name)
    assert before.end_lineno is not None
    lines.insert(before.end_lineno, entry)
    file.write_text("".join(lines), encoding="utf-8")
    return folder


def run(core: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    path = os.pathsep.join([str(core), str(Path(one_more_check.__file__).parent)])
    return subprocess.run(
        [sys.executable, *words], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )


def told(core: Path, account: str, *options: str) -> dict[str, Any]:
    found = run(core, one_more_check.__file__, account, *options)
    assert found.returncode == 0, found.stderr
    answer: dict[str, Any] = json.loads(found.stdout)
    return answer


def test_a_check_of_tools_is_one_entry(tmp_path: Path) -> None:
    found = told(with_entry(tmp_path, TOOL_SET_ASIDE, after=Reason.TOOL_DISABLED), "bot")

    assert found == {
        "decided": [False, "set_aside", 2],
        # it keeps its bare name, as a disabled tool does
        "view": {"plain": "team-a/plain", "team-b/marked": "team-b/marked"},
        "anonymous": ["team-a/plain", "team-b/marked"],
        "scopes": ["registry:admin", "use"],
        "power": True,
        "explained": [False, "set_aside", 2, "somebody set the tool aside"],
        "steps": ["passed", "failed", "not_reached", "not_reached", "not_reached"],
        "later": [],
        "answer": "set_aside",
        "metrics": [
            'toolcrib_denials_total{action="call",agent="anonymous",reason="set_aside",rule=""} 1.0',
            'toolcrib_decisions_total{action="call",allowed="false",reason="set_aside"} 1.0',
            # callers never learn why they do not see a tool
            'toolcrib_calls_cut_total{reason="not_permitted"} 1.0',
        ],
        "documented": ["decisions.md"],
    }


def test_a_check_of_callers_is_one_entry(tmp_path: Path) -> None:
    core = with_entry(tmp_path, CALLER_SET_ASIDE, after=Reason.ACCOUNT_GONE)

    found, other = told(core, "set-aside"), told(core, "bot", "--no-pages")

    assert found["decided"] == [False, "set_aside", 1]
    assert (found["view"], found["scopes"], found["power"]) == ({}, [], False)
    assert found["explained"] == [False, "set_aside", 1, "somebody set the agent aside"]
    assert found["steps"] == ["failed"] + ["not_reached"] * 4
    assert found["later"] == [["set-aside", t, "gained"] for t in other["anonymous"]]
    assert 'toolcrib_calls_cut_total{reason="set_aside"} 1.0' in found["metrics"]
    assert found["documented"] == ["decisions.md"]
    assert other["decided"] == [True, "granted", None]
    assert other["anonymous"] == ["team-a/marked", "team-a/plain", "team-b/marked"]
    assert (len(other["view"]), other["power"]) == (3, True)


@pytest.mark.parametrize(
    ("entry", "after"),
    [
        pytest.param(TOOL_SET_ASIDE, Reason.AGENT_SUSPENDED, id="before its step's other checks"),
        pytest.param(CALLER_SET_ASIDE, Reason.NO_IDENTITY, id="between the checks of its step"),
    ],
)
def test_an_entry_may_stand_anywhere_in_its_step(tmp_path: Path, entry: str, after: Reason) -> None:
    found = run(with_entry(tmp_path, entry, after), "-c", "import toolcrib.authorizer")

    assert found.returncode == 0, found.stderr


@pytest.mark.parametrize(
    ("entry", "after"),
    [
        pytest.param(TOOL_SET_ASIDE, Reason.NO_IDENTITY, id="in an earlier step"),
        pytest.param(CALLER_SET_ASIDE, Reason.TOOL_DISABLED, id="in a later step"),
        pytest.param(
            TOOL_SET_ASIDE.replace("Order.TOOL", "Order.TOKEN"), Reason.TOKEN_LACKS_SCOPE, id="never asked"
        ),
        pytest.param('\n    SET_ASIDE = "set_aside", "x", Order.TOOL\n', Reason.TOOL_DISABLED, id="no check"),
        pytest.param(
            '\n    SET_ASIDE = "set_aside", "x", None, unknown\n', Reason.TOOL_DISABLED, id="no step"
        ),
    ],
)
def test_an_entry_out_of_place_starts_nothing(tmp_path: Path, entry: str, after: Reason) -> None:
    found = run(with_entry(tmp_path, entry, after), "-c", "import toolcrib.authorizer")

    assert "TypeError: " in found.stderr
    assert found.returncode != 0


def test_the_order_is_that_of_the_design() -> None:
    asked = {check: [r.value for r in Reason if r.check is check] for check in CHECKS}

    assert list(asked.values()) == [
        ["no_identity"],
        ["identity_expired"],
        ["account_gone"],
        ["agent_suspended"],
        ["unknown_tool"],
        ["tool_disabled"],
        ["tool_quarantined"],
        ["denied"],
        ["no_binding", "scope_not_granted", "not_allowed_by_name", "not_valid_now", "token_lacks_scope"],
    ]
    assert [r.value for r in Reason if r.step is None] == ["granted", "anonymous_list"]
    assert {r.step for r in Reason} == {None, *Order}
