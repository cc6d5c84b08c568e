"""What makes a tool hard to find: each rule, and what a change of one tool means for the others."""

from typing import Any

import pytest

from manifests import manifest
from toolcrib.lint.weaknesses import EMBEDDED, HINTS, SearchLint, words
from toolcrib.resources import Tool, parse
from toolcrib.resources.conditions import MEANINGS, ConditionReason

GOOD = "Look up who guards which corridor"


def at(path: str, **fields: Any) -> dict[str, Any]:
    """A backend with this path."""
    return {"http": {"service": {"name": "guards", "port": 80}, "path": path, **fields}}


def tool(name: str = "guard_schedule", namespace: str = "heist", **spec: Any) -> Tool:
    body = {"description": GOOD, "scopes": ["s:use"], "backend": {"none": {}}, **spec}
    slug = name.lower().replace("_", "-")
    parsed = parse(manifest("Tool", slug, namespace, name=name, **body))
    assert isinstance(parsed, Tool)
    return parsed


def found(*tools: Tool) -> list[set[str]]:
    """The codes of each of these tools, where they are all there are."""
    lint = SearchLint()
    for each in tools:
        lint.update(each.tool_id, each)
    return [{w.reason.value for w in lint.weaknesses(each)} for each in tools]


@pytest.mark.parametrize(
    ("spec", "codes"),
    [
        ({}, set()),
        ({"description": ""}, {"NoDescription"}),
        ({"description": " \n"}, {"NoDescription"}),
        ({"description": "Guard schedule."}, {"DescriptionRepeatsName"}),
        ({"description": "This tool gets the guards' schedules", "name": "get_guard_schedule"}, {"DescriptionRepeatsName"}),
        ({"description": "Lists issues of GitHub", "name": "list_issues", "server": "github"}, {"DescriptionRepeatsName"}),
        ({"description": "TODO"}, {"DescriptionRepeatsName"}),
        ({"description": "Corridor times"}, {"DescriptionTooShort"}),
        ({"description": "Corridor guards and times"}, set()),
        ({"description": "读取共享文件夹中的文本文件"}, set()),  # no spaces between words
        ({"description": "读取文件"}, {"DescriptionTooShort"}),
        ({"description": "파일을PDF로변환"}, set()),
        ({"description": GOOD + "x" * (EMBEDDED - len(GOOD))}, set()),
        ({"description": GOOD + "x" * (EMBEDDED + 1 - len(GOOD))}, {"DescriptionCut"}),
        ({"name": "tool1"}, {"NameSaysNothing"}),
        ({"name": "run"}, {"NameSaysNothing"}),
        ({"name": "do_it"}, {"NameSaysNothing"}),
        ({"name": "myHelperFunction2"}, {"NameSaysNothing"}),
        ({"name": "q"}, {"NameSaysNothing"}),
        ({"name": "run", "server": "terraform"}, set()),
        ({"name": "run_report"}, set()),
        ({"inputSchema": {"type": "object", "properties": {"a": {"type": "string"}}}}, {"ParametersUndescribed"}),
        ({"inputSchema": {"type": "object", "properties": {"a": {"description": " "}}}}, {"ParametersUndescribed"}),
        ({"inputSchema": {"type": "object", "properties": {"a": True}}}, {"ParametersUndescribed"}),
        ({"inputSchema": {"type": "object", "properties": {"a": {"description": "which"}}}}, set()),
        ({"inputSchema": {"type": "object", "properties": {}}}, set()),
        ({"inputSchema": {"type": "object", "required": ["a"]}}, {"RequiredUndeclared"}),
        ({"inputSchema": {"required": ["a", "b"], "properties": {"a": {"description": "which"}}}}, {"RequiredUndeclared"}),
        ({"inputSchema": {"required": ["a"], "properties": {"a": {"description": "which"}}}}, set()),
        # it may be said elsewhere what they are
        ({"inputSchema": {"required": ["a"], "allOf": [{"properties": {"a": {}}}]}}, set()),
        ({"inputSchema": {"required": ["a"], "patternProperties": {"^a$": {}}}}, set()),
        ({"inputSchema": {"required": ["a"], "additionalProperties": {"type": "string"}}}, set()),
        ({"inputSchema": {"required": ["a"], "additionalProperties": True}}, {"RequiredUndeclared"}),
        ({"backend": at(path="/guards/{who}")}, {"PathArgumentUndeclared"}),
        ({"backend": at(path="/guards/{who}"), "inputSchema": {"properties": {"who": {"description": "which"}}}}, set()),
        ({"backend": at(path="/guards/{id}", parameters=[{"argument": "who", "in": "path", "name": "id"}])}, {"PathArgumentUndeclared"}),
        ({"backend": at(path="/guards/{id}", parameters=[{"argument": "who", "in": "path", "name": "id"}]),
          "inputSchema": {"properties": {"who": {"description": "which"}}}}, set()),
        ({"backend": {"http": {"url": "https://api.example.com/guards/{who}"}}}, {"PathArgumentUndeclared"}),
        ({"backend": {"http": {"url": "https://api.example.com/guards/{who}"}},
          "inputSchema": {"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"who": {}}}}}}, set()),
        ({"description": "", "state": "Disabled"}, set()),
        ({"description": "", "state": "Deprecated"}, set()),
    ],
)  # fmt: skip
def test_a_tool_is_judged_by_itself(spec: dict[str, Any], codes: set[str]) -> None:
    assert found(tool(**{"name": "guard_schedule", **spec})) == [codes]


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (GOOD, GOOD, True),
        (GOOD, "look up: who guards WHICH corridor?", True),
        ("Calls one_thing over the wire quickly", "Calls other_thing over the wire quickly", True),
        (GOOD, GOOD + " tomorrow", False),
        ("Copy the file there from here now", "Copy here the file from there now", False),
        ("Move the message to the trash folder", "Move a message to the trash folder", True),
        ("Move the message to the trash folder", "Move the message from the trash folder", False),
        ("Export rows to CSV files", "Export rows from CSV files", False),
        ("读取PDF文件的内容", "读取PDF文件的内容。", True),
        ("读取PDF文件的内容", "读取CSV文件的内容", False),
        ("创建一个新的用户组", "创建一个新的用户表", False),
        ("把文件转换为JSON格式", "把文件转换为YAML格式", False),
        ("파일을PDF로변환", "파일을CSV로변환", False),
        ("आज की सभी फ़ाइलें पढ़ें", "आज का सभी फ़ाइलें पढ़ें", False),
        ("ลบไฟล์ที่อยู่ในโฟลเดอร์นี", "ลบไฟล์ที่อยู่ในโฟลเดอร์นั", False),
        ("", "", False),
        ("TODO", "TODO", False),
    ],
)
def test_descriptions_of_the_same_words_are_duplicates(first: str, second: str, same: bool) -> None:
    one, other = found(tool("one_thing", description=first), tool("other_thing", description=second))
    assert ("DuplicateDescription" in one, "DuplicateDescription" in other) == (same, same)


def test_another_namespace_is_nobodys_business_and_neither_is_what_is_on_its_way_out() -> None:
    assert found(tool("one"), tool("two", namespace="bank")) == [set(), set()]
    assert found(tool("one"), tool("two", state="Disabled")) == [set(), set()]
    assert found(tool("one"), tool("two", state="Deprecated")) == [set(), set()]


def test_one_verb_of_a_single_word_name_keeps_descriptions_apart() -> None:
    create = tool("create", description="create a user of the directory by mail address")
    assert found(create, tool("delete", description="delete a user of the directory by mail address")) == [set(), set()]  # fmt: skip


def test_a_name_that_is_a_word_is_what_a_description_may_be_about() -> None:
    drives = [
        tool(n, description=f"Connects to {n} to ingest files of its folders")
        for n in ("OneDrive", "SharePoint")
    ]
    assert found(*drives) == [set(), set()]


def test_an_example_that_three_tools_have_is_boilerplate_and_one_that_two_have_is_none() -> None:
    tools = [
        tool(n, description=f"{GOOD} by {n}", examples=["Please help me!", n])
        for n in ("night", "day", "dusk")
    ]
    assert found(*tools) == [{"BoilerplateExamples"}] * 3
    assert found(*tools[:2]) == [set(), set()]


def test_weaknesses_come_in_the_order_of_the_rules_and_say_what_to_do() -> None:
    bare = {"type": "object", "properties": {f"p{i}": {} for i in range(9)}}
    lint, weak = SearchLint(), tool("tool1", description="", inputSchema=bare)
    lint.update(weak.tool_id, weak)
    told = lint.weaknesses(weak)
    assert [w.reason.value for w in told] == ["NoDescription", "NameSaysNothing", "ParametersUndescribed"]
    assert all(w.hint == HINTS[w.reason] for w in told)
    assert told[2].message == "9 of 9 without a description: p0, p1, p2 and 6 more"


def test_what_a_call_needs_and_no_model_is_told_of_is_named_with_what_may_be_meant() -> None:
    schema = {
        "type": "object",
        "properties": {"employee_id": {"description": "who"}},
        "required": ["employee", "b", "c", "d", "zz"],
    }
    lint, weak = SearchLint(), tool(inputSchema=schema, backend=at(path="/staff/{employeeid}/{year}"))
    lint.update(weak.tool_id, weak)
    assert [str(w) for w in lint.weaknesses(weak)] == [
        "spec.inputSchema.required: employee (did you mean employee_id?), b, c and 2 more: required, but not in properties",
        "spec.backend.http.path: employeeid (did you mean employee_id?), year: in the path, but not in inputSchema.properties",
    ]


def test_every_rule_has_a_meaning_and_a_hint() -> None:
    assert all(MEANINGS[code] and HINTS[code] for code in HINTS)
    assert next(iter(HINTS)) is ConditionReason.NO_DESCRIPTION


def test_other_peoples_text_in_a_message_is_short_and_harmless() -> None:
    schema = {"type": "object", "properties": {"\u202eevil" + "x" * 500: {}}}
    lint, weak = SearchLint(), tool(inputSchema=schema)
    lint.update(weak.tool_id, weak)
    (said,) = lint.weaknesses(weak)
    assert "\\u202eevil" in said.message
    assert len(said.message) < 120


def test_a_change_of_one_of_very_many_alike_concerns_its_neighbours_alone() -> None:
    lint = SearchLint()
    tools = [tool(f"thing{i:04}", description=GOOD, examples=["the same for all"]) for i in range(2_000)]
    touched = [len(lint.update(t.tool_id, t)) for t in tools]
    assert max(touched) <= 4
    assert lint.update("heist/thing1000", None) == {"heist/thing0999", "heist/thing1001"}
    (after,) = [w for w in lint.weaknesses(tools[1001]) if w.reason is ConditionReason.DUPLICATE_DESCRIPTION]
    assert "heist/thing0999" in after.message


def test_whatever_happens_those_who_were_not_named_say_what_they_said() -> None:
    lint, held = SearchLint(), {}
    said: dict[str, tuple[Any, ...]] = {}
    texts = (GOOD, GOOD + " now", "")
    for step in range(400):
        number = (step * 7919) % 23
        key = f"heist/t{number}"
        name, text = f"t{number}", texts[(step * 31) % 3]
        new = None if step % 5 == 4 else tool(name, description=text, examples=["again", f"e{step % 2}"])
        touched = lint.update(key, new)
        held = {k: v for k, v in held.items() if k != key} | ({} if new is None else {key: new})
        for other, resource in held.items():
            now = lint.weaknesses(resource)
            if other != key and other not in touched:
                assert said[other] == now, (step, key, other)
            said[other] = now


def test_identifiers_are_split_into_words() -> None:
    assert words("getHTTPStatus_v2 of-it") == ["get", "http", "status", "v", "2", "of", "it"]


def test_of_text_without_spaces_nothing_is_left_out() -> None:
    assert words("读取PDFファイルv2的") == ["读取", "pdf", "ファ", "イル", "v", "2", "的"]
