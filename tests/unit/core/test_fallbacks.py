"""Which tools are called in the place of another: by what is published, and nothing else."""

from typing import Any

import pytest

from published import tool
from toolcrib import fallbacks, publishing
from toolcrib.errors import InvalidManifest
from toolcrib.resources.kinds import parse
from toolcrib.resources.tools import ScopeMatch, Tool, ToolState
from toolcrib.wire.publish import PublishedTool

READS = {"readOnlyHint": True}
TOOL = tool("team/rates", annotations=READS, fallback=("team/spare",))


def spare(**fields: Any) -> PublishedTool:
    return tool("team/spare", **({"annotations": READS} | fields))


def asked(*others: PublishedTool) -> str | None:
    return fallbacks.problem(TOOL, "team/spare", {t.tool_id: t for t in (TOOL, *others)})


@pytest.mark.parametrize(
    ("others", "problem"),
    [
        ((spare(),), None),
        ((spare(state=ToolState.DEPRECATED),), None),
        ((spare(fallback=("team/gone",)),), None),
        ((), "team/spare does not exist or is not in use"),
        ((spare(state=ToolState.DISABLED),), "team/spare does not exist or is not in use"),
        ((spare(quarantined=True),), "team/spare does not exist or is not in use"),
        ((spare(scopes=("use", "more")),), "team/spare does not have the same scopes and scopeMatch"),
        ((spare(scope_match=ScopeMatch.ALL),), "team/spare does not have the same scopes and scopeMatch"),
        ((spare(annotations={}),), "team/spare is not idempotent: it has neither idempotentHint nor readOnlyHint"),
        ((spare(fallback=("team/rates",)),), "team/spare leads back to team/rates"),
        (
            (spare(fallback=("team/a", "team/b")), tool("team/a"), tool("team/b", fallback=("team/rates",))),
            "team/spare leads back to team/rates",
        ),
        ((spare(fallback=("team/a",)), tool("team/a", fallback=("team/spare",))), None),
    ],
)  # fmt: skip
def test_a_fallback_is_there_of_the_same_scopes_idempotent_and_does_not_lead_back(
    others: tuple[PublishedTool, ...], problem: str | None
) -> None:
    assert asked(*others) == problem


_IDEMPOTENT = {"idempotentHint": True}


@pytest.mark.parametrize(
    ("of_tool", "of_spare", "lacking"),
    [
        (READS, _IDEMPOTENT, "readOnlyHint: true, destructiveHint: false"),
        (READS, _IDEMPOTENT | {"readOnlyHint": False}, "readOnlyHint: true, destructiveHint: false"),
        (READS, _IDEMPOTENT | {"destructiveHint": False}, "readOnlyHint: true"),
        (READS, READS | {"destructiveHint": True}, "destructiveHint: false"),
        (READS, READS | {"openWorldHint": True}, None),
        (READS | {"openWorldHint": False}, READS, "openWorldHint: false"),
        (READS | {"openWorldHint": False}, READS | {"openWorldHint": True}, "openWorldHint: false"),
        (READS | {"openWorldHint": False}, READS | {"openWorldHint": False}, None),
        (READS | {"destructiveHint": True}, READS | {"destructiveHint": True}, None),
        (_IDEMPOTENT, READS, None),
        (_IDEMPOTENT, _IDEMPOTENT | {"destructiveHint": True, "openWorldHint": True}, None),
        (_IDEMPOTENT | {"destructiveHint": False}, _IDEMPOTENT, "destructiveHint: false"),
        (_IDEMPOTENT | {"destructiveHint": False}, _IDEMPOTENT | {"destructiveHint": True}, "destructiveHint: false"),
        (_IDEMPOTENT | {"destructiveHint": False}, READS, None),
    ],
)  # fmt: skip
def test_a_fallback_never_has_wider_effects_than_the_hints_of_the_tool_allow(
    of_tool: dict[str, bool], of_spare: dict[str, bool], lacking: str | None
) -> None:
    called, other = (
        tool("team/rates", annotations=of_tool, fallback=("team/spare",)),
        spare(annotations=of_spare),
    )
    problem = fallbacks.problem(called, "team/spare", {t.tool_id: t for t in (called, other)})
    says = f"team/spare may have wider effects than team/rates: it does not have {lacking}"
    assert problem == (lacking and says)


def test_a_fallback_is_judged_by_the_definition_that_the_caller_gets() -> None:
    candidate = spare(annotations=_IDEMPOTENT)
    tools = {t.tool_id: t for t in (TOOL, spare())}
    assert fallbacks.problem(TOOL, "team/spare", tools) is None
    assert "wider effects" in (fallbacks.problem(TOOL, "team/spare", tools, candidate) or "")


def test_no_tool_is_its_own_fallback() -> None:
    assert (
        fallbacks.problem(TOOL, TOOL.tool_id, {TOOL.tool_id: TOOL}) == "team/rates leads back to team/rates"
    )


def manifest(**spec: Any) -> dict[str, Any]:
    body = {"scopes": ["use"], "annotations": READS, "backend": {"none": {}}}
    return {
        "apiVersion": "toolcrib.dev/v1alpha1",
        "kind": "Tool",
        "metadata": {"name": "rates", "namespace": "team"},
        "spec": body | spec,
    }


def published(**spec: Any) -> PublishedTool:
    found = parse(manifest(**spec))
    assert isinstance(found, Tool)
    return publishing.tool(found)


def test_fallbacks_are_tools_of_the_same_namespace_and_part_of_the_route() -> None:
    without, some = published(), published(fallback=["b", "a", "b"])
    assert some.fallback == ("team/b", "team/a")
    assert some.digest == without.digest
    assert len({t.route_digest for t in (without, some, published(fallback=["a", "b"]))}) == 3
    assert published(fallback=[]).route_digest == without.route_digest, "as before there were fallbacks"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"fallback": ["rates"]}, "a tool cannot be its own fallback"),
        ({"fallback": ["other/spare"]}, "fallback"),
        ({"fallback": ["a", "b", "c", "d", "e"]}, "fallback"),
        ({"fallback": ["spare"], "annotations": None}, "fallback needs annotations.idempotentHint or readOnlyHint"),
        (
            {"fallback": ["spare"], "annotations": {"idempotentHint": False}},
            "fallback needs annotations.idempotentHint or readOnlyHint",
        ),
    ],
)  # fmt: skip
def test_what_can_be_no_fallback_is_refused(spec: dict[str, Any], said: str) -> None:
    made = manifest(**spec)
    made["spec"] = {key: value for key, value in made["spec"].items() if value is not None}
    with pytest.raises(InvalidManifest, match=said):
        parse(made)
