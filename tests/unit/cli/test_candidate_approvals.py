"""Which candidates of ToolCanaries a person decides about, and how they are named beside Tools."""

from typing import Any

import pytest

from manifests import manifest, tool
from toolcrib_cli.approving.shown import candidates, shown
from toolcrib_cli.commands import approvals
from toolcrib_cli.errors import CliError

MANUAL = tool("calculator", approval="Manual")
SPARE = tool("spare", approval="Manual", description="Another.")


def canary(name: str = "words", status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    spec = {"tool": "calculator", "candidate": {"description": "Better."}} | spec
    return manifest("ToolCanary", name, "heist", **spec) | {"status": status or {}}


@pytest.mark.parametrize(
    ("one", "tools"),
    [
        (canary(status={"result": "Better"}), [MANUAL]),
        (canary(), [tool("calculator")]),
        (canary(), []),
        (canary(candidate={"replacement": "spare"}), [MANUAL]),
        (canary(candidate={}), [MANUAL]),
    ],
    ids=["is over", "needs no approval", "has no tool", "has no replacement", "is not valid"],
)
def test_a_trial_that_is_over_or_of_nothing_waits_for_nobody(
    one: dict[str, Any], tools: list[dict[str, Any]]
) -> None:
    assert candidates([one], tools, {}) == []


def test_a_replacement_is_shown_by_what_differs_from_the_tool_with_its_backend() -> None:
    (found,) = candidates([canary(candidate={"replacement": "spare"})], [MANUAL, SPARE], {})
    assert '+ description: "Another."' in found.changes
    assert '+ backend.path: "/tools/spare"' in found.changes
    assert not any("scopes" in each for each in found.changes)
    assert (found.kind, found.reason) == ("ToolCanary", "Pending")


def test_a_tool_comes_before_a_canary_of_its_name_and_each_has_a_name_of_its_own() -> None:
    own = shown(MANUAL, {})
    assert own is not None
    found = [own, *candidates([canary("calculator"), canary("words")], [MANUAL], {})]
    named = {name: approvals._one(found, name) for name in ("calculator", "calculator~candidate", "words")}
    assert [each.kind for each in named.values()] == ["Tool", "ToolCanary", "ToolCanary"]
    assert named["words"].approval["metadata"] == {"name": "words", "namespace": "heist"}
    with pytest.raises(CliError, match="there is no Tool nothing"):
        approvals._one(found, "nothing")
