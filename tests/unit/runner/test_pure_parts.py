"""The runner's pure parts: reading discovery answers, checking arguments, pacing, settings, results, the script."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

import toolcrib_runner
from toolcrib_runner import answers, arguments, discovery, results, scripted
from toolcrib_runner.discovery import DiscoveredTool, Parameter, Rediscovery
from toolcrib_runner.errors import InvalidArguments, RegistryAnswerInvalid, SettingsInvalid, ToolFailed
from toolcrib_runner.follower import Pace
from toolcrib_runner.loop import CallRecord, Outcome, Report
from toolcrib_runner.session import conversation
from toolcrib_runner.settings import ENVIRONMENT, RunnerSettings
from toolcrib_runner.usage import Usage

ENTRY = {
    "name": "t",
    "endpoint": "/tools/t",
    "scopes": ["t:use"],
    "description": "d",
    "parameters": {"a": {"type": "string|integer", "description": "x", "required": True}},
    "returns": "r",
    "host": "h",
    "port": 80,
}
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


def document(*tools: Any) -> dict[str, Any]:
    return {"authenticated": True, "scopes": ["t:use"], "tools": list(tools)}


def test_a_discovery_answer_is_read_field_by_field() -> None:
    found = discovery.read(document(ENTRY), '"e"')
    assert found.tools == (
        DiscoveredTool(
            "t",
            "/tools/t",
            "d",
            (Parameter("a", ("string", "integer"), "x", True),),
            ("t:use",),
            "r",
            "h",
            80,
        ),
    )
    assert (found.authenticated, found.scopes, found.etag, found.skipped) == (True, ("t:use",), '"e"', 0)


@given(st.sampled_from(sorted(ENTRY)), json_values)
def test_no_field_of_an_entry_can_break_the_reading(field: str, value: Any) -> None:
    found = discovery.read(document({**ENTRY, field: value}, {**ENTRY, "name": "good"}))
    assert "good" in {tool.name for tool in found.tools}
    assert len(found.tools) + found.skipped == 2


@pytest.mark.parametrize("endpoint", ["", "tools/t", "https://evil/x", "/tools/t\r\nx: y", "/a b", 7])
def test_an_endpoint_that_is_no_path_is_not_called(endpoint: Any) -> None:
    assert discovery.read(document({**ENTRY, "endpoint": endpoint})).tools == ()


@pytest.mark.parametrize("answer", [None, [], "x", {}, {"tools": {}}])
def test_an_answer_that_is_no_discovery_is_an_error(answer: Any) -> None:
    with pytest.raises(RegistryAnswerInvalid):
        discovery.read(answer)


def test_a_rediscovery_is_true_only_if_something_changed() -> None:
    before = {"a": DiscoveredTool("a", "/a"), "b": DiscoveredTool("b", "/b")}
    assert not discovery.compare(before, before)
    changed = discovery.compare(before, {"a": DiscoveredTool("a", "/other"), "c": DiscoveredTool("c", "/c")})
    assert changed == Rediscovery(gained=("c",), lost=("b",), unchanged=("a",), changed=("a",))
    assert changed


@pytest.mark.parametrize(
    ("types", "value", "fits"),
    [
        (("string",), "x", True), (("string",), 1, False), (("integer",), 1, True), (("integer",), 1.0, True),
        (("integer",), True, False), (("number",), 1, True), (("number",), 1.5, True), (("number",), "1", False),
        (("boolean",), False, True), (("boolean",), 0, False), (("array",), [1], True), (("array",), {}, False),
        (("object",), {"a": 1}, True), (("object",), [], False), (("string", "integer"), 3, True),
        (("string", "integer"), 3.5, False), ((), object, False), ((), 3, True), (("unheard-of",), 3, True),
        (("string",), None, True),
    ],
)  # fmt: skip
def test_a_value_fits_its_parameters_type(types: tuple[str, ...], value: Any, fits: bool) -> None:
    tool = DiscoveredTool("t", "/t", parameters=(Parameter("a", types),))
    if fits:
        arguments.check(tool, {"a": value})
    else:
        with pytest.raises(InvalidArguments):
            arguments.check(tool, {"a": value})


def test_all_problems_of_the_arguments_are_told_at_once() -> None:
    tool = DiscoveredTool(
        "t", "/t", parameters=(Parameter("a", ("string",), required=True), Parameter("b", ("integer",)))
    )
    with pytest.raises(InvalidArguments) as refused:
        arguments.check(tool, {"b": "x", "c": 1})
    assert len(refused.value.problems) == 3


@given(json_values)
def test_whatever_json_can_carry_passes_where_any_type_will_do(value: Any) -> None:
    arguments.check(DiscoveredTool("t", "/t", parameters=(Parameter("a"),)), {"a": value})


@pytest.mark.parametrize("value", ["\ud800", ["a\udfff"], {"\ud800": 1}])
def test_text_that_is_not_unicode_is_refused(value: Any) -> None:
    with pytest.raises(InvalidArguments, match="not valid Unicode"):
        arguments.check(DiscoveredTool("t", "/t", parameters=(Parameter("a"),)), {"a": value})


def test_arguments_nested_too_deeply_are_refused() -> None:
    deep: list[Any] = []
    for _ in range(40):
        deep = [deep]
    with pytest.raises(InvalidArguments, match="nested deeper"):
        arguments.check(DiscoveredTool("t", "/t", parameters=(Parameter("a"),)), {"a": deep})


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{", b'{"code": 7, "detail": []}', b"[" * 100_000])
def test_any_error_answer_becomes_a_typed_error(body: bytes) -> None:
    for status in (301, 400, 401, 403, 404, 418, 429, 500, 503):
        assert str(answers.of_call("t", status, body, "soon"))
        assert str(answers.of_registry(status, body, None))


def test_a_tools_own_error_reaches_the_model() -> None:
    body = json.dumps(
        {"code": "tool_error", "detail": "refused (400)", "upstream": {"detail": "no such file"}}
    )
    error = answers.of_call("t", 422, body.encode(), None)
    assert isinstance(error, ToolFailed)
    assert json.loads(conversation.error_text(error))["error"]["answer"] == {"detail": "no such file"}


def test_what_is_wrong_with_arguments_reaches_the_model() -> None:
    body = json.dumps(
        {
            "code": "invalid_arguments",
            "detail": "no",
            "errors": [{"pointer": "/a", "message": "is not one of x"}],
        }
    )
    error = answers.of_call("t", 400, body.encode(), None)
    assert json.loads(conversation.error_text(error))["error"]["problems"] == ["/a: is not one of x"]


def test_retries_grow_up_to_a_ceiling_and_are_spread() -> None:
    pace = Pace(first_retry=1, longest_retry=8)
    assert [pace.retry(n, 1.0) for n in (1, 2, 3, 4, 5, 500)] == [1, 2, 4, 8, 8, 8]
    assert pace.retry(4, 0.0) == 4


def test_of_equally_used_tools_the_first_by_name_is_the_most_used() -> None:
    usage = Usage("a")
    for tool in ("b", "a", "b", "a"):
        usage.count(tool)
    assert usage.stats(0).most_used_tool == "a"


def test_settings_come_from_flags_before_the_environment() -> None:
    environ = {
        "TOOLCRIB_AGENT": "env",
        "TOOLCRIB_URL": "http://r:1",
        "TOOLCRIB_TASK": "t",
        "TOOLCRIB_MAX_TURNS": "3",
    }
    settings = RunnerSettings.read({"name": "flag", "model_url": "http://m/v1", "task": None}, environ)
    assert (settings.name, settings.registry_url, settings.task, settings.max_turns) == (
        "flag",
        "http://r:1",
        "t",
        3,
    )


def test_every_wrong_setting_is_named_at_once() -> None:
    with pytest.raises(SettingsInvalid) as invalid:
        RunnerSettings.read({"name": "a b", "max_turns": "many"}, {"TOOLCRIB_URL": "nowhere"})
    assert [p.split(":")[0] for p in invalid.value.problems] == [
        "--name (TOOLCRIB_AGENT)",
        "--registry-url (TOOLCRIB_URL)",
        "--max-turns (TOOLCRIB_MAX_TURNS)",
    ]


def test_every_setting_has_a_variable_and_a_description() -> None:
    assert set(ENVIRONMENT) == set(RunnerSettings.model_fields)
    assert all(field.description for field in RunnerSettings.model_fields.values())


def test_a_result_shows_how_it_ended_and_what_was_used() -> None:
    usage = Usage("planner")
    usage.count("calculator")
    report = Report(
        Outcome.OUT_OF_TURNS,
        "so far\x1b[2J",
        "",
        2,
        10,
        5,
        [CallRecord("calculator", "ok", 0.1), CallRecord("x", "no", 0)],
    )
    shown = results.as_text(report, usage.stats(3))
    assert "so far\\x1b[2J" in shown
    assert "[stopped: the bound on turns is reached]" in shown
    assert "3 available, used: calculator 1" in shown
    assert "2, 1 of them failed or refused" in shown
    assert json.loads(results.as_json(report, usage.stats(3)))["outcome"] == "out_of_turns"
    assert set(results.EXIT_CODES) == set(Outcome)


def test_the_script_obeys_call_lines_in_their_order() -> None:
    task = 'Do this:\ncall a {"x": 1}\n  call ns/b\ncall a {"x": 2}'
    assert scripted.plan(task, []) == [("a", '{"x": 1}'), ("ns__b", "{}"), ("a", '{"x": 2}')]


def test_the_script_picks_functions_by_words_and_fills_what_is_required() -> None:
    def function(name: str, about: str, **required: str) -> dict[str, Any]:
        properties = {n: {"type": t} for n, t in required.items()}
        return {
            "name": name,
            "description": about,
            "parameters": {"properties": properties, "required": [*required]},
        }

    offered = [
        function("calculator", "Compute an arithmetic expression", expression="string"),
        function("file_reader", "Read a text file of the shared folder", filename="string"),
        function("weather", "The weather of a city", city="string"),
    ]
    assert scripted.plan("Read the file guard_schedule.txt of the shared folder", offered) == [
        ("file_reader", '{"filename": "guard_schedule.txt"}')
    ]
    assert scripted.plan("compute the expression (310 / 4.5) + 12 please", offered) == [
        ("calculator", '{"expression": "(310 / 4.5) + 12"}')
    ]
    assert scripted.plan("nothing of that kind", offered) == []


def test_all_exported_names_exist_and_are_sorted() -> None:
    assert all(hasattr(toolcrib_runner, name) for name in toolcrib_runner.__all__)
    assert toolcrib_runner.__all__ == sorted(toolcrib_runner.__all__)


def test_the_readme_lists_every_metric_and_exit_code() -> None:
    readme = (Path(__file__).parents[3] / "agent_runner" / "README.md").read_text()
    numbers = CollectorRegistry()
    toolcrib_runner.RunnerMetrics(numbers)
    for family in numbers.collect():
        name = family.name + ("_total" if family.type == "counter" else "")
        assert f"`{name}`" in readme
    for code in results.EXIT_CODES.values():
        assert re.search(rf"^\| {code}\b", readme, re.MULTILINE)


def test_each_sdk_is_imported_in_its_adapter_alone() -> None:
    package = Path(toolcrib_runner.__file__).parent
    imported: dict[str, set[str]] = {"openai": set(), "httpx": set()}
    for module in package.rglob("*.py"):
        for sdk, modules in imported.items():
            if re.search(rf"^(import|from) {sdk}\b", module.read_text(), re.MULTILINE):
                modules.add(str(module.relative_to(package)))
    assert imported == {
        "openai": {"adapters/openai_model.py"},
        "httpx": {"adapters/registry_http.py", "adapters/client_credentials.py"},
    }
