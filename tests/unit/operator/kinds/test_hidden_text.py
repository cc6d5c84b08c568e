"""Tools whose texts hide characters: refused, or used and Questionable, by the operator's setting."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests import tool
from operator_stage import SETTINGS, staged
from toolcrib.lint.hidden_text import Hidden
from toolcrib.resources.conditions import ConditionReason
from toolcrib_operator import options
from toolcrib_operator.kinds.table import entry_of
from toolcrib_operator.kinds.tool import assess_tool
from waiting import until

pytestmark = pytest.mark.anyio
URLS = ["--registry-url", "http://r"]
TEXT = "Adds numbers.\u202e\U000e0041"


@given(
    st.sampled_from("\u200b\u202e\U000e0041\u2066\x1b\ufeff"),
    st.sampled_from(["description", "title", "returns"]),
)
def test_a_tool_with_hidden_text_is_refused_by_default_and_used_with_a_warning_where_that_is_set(
    character: str, field: str
) -> None:
    entry = entry_of("Tool", tool("calculator", **{field: f"Adds two{character} numbers."}))
    refused = assess_tool(entry, owner=None, credential=None)
    assert refused.published is None
    assert refused.refusal is not None
    assert refused.refusal.reason is ConditionReason.HIDDEN_TEXT
    assert f"spec.{field}: hidden U+{ord(character):04X}" in refused.refusal.message
    warned = assess_tool(entry, owner=None, credential=None, hidden=Hidden.WARN)
    assert warned.published is not None
    assert [(w.reason, w.field) for w in warned.weaknesses] == [
        (ConditionReason.HIDDEN_TEXT, f"spec.{field}")
    ]


async def test_the_condition_says_where_and_which_and_the_setting_decides() -> None:
    async with staged(tool("calculator", description=TEXT)) as stage:
        await until(lambda: stage.said("heist/calculator", "Tool").get("Accepted") == ("False", "HiddenText"))
    async with staged(
        tool("calculator", description=TEXT), settings=replace(SETTINGS, hidden_text=Hidden.WARN)
    ) as stage:
        await until(lambda: stage.said("heist/calculator", "Tool").get("Ready") == ("True", "Ready"))
        assert stage.said("heist/calculator", "Tool")["Questionable"] == ("True", "HiddenText")


def test_hidden_text_is_refused_unless_the_operator_is_told_otherwise() -> None:
    assert options.parse(URLS, {}).loop.hidden_text is Hidden.REFUSE
    assert options.parse([*URLS, "--hidden-text", "warn"], {}).loop.hidden_text is Hidden.WARN
    with pytest.raises(SystemExit):
        options.parse(URLS, {"TOOLCRIB_OPERATOR_HIDDEN_TEXT": "off"})
