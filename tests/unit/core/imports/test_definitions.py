"""What Tool a definition becomes: its names, what the ToolServer sets instead, and why some become none."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests import manifest
from toolcrib import names
from toolcrib.imports.definitions import Imported, LeftOut, imported, mark_of, tool_name
from toolcrib.resources import ToolServer, parse
from toolcrib.wire.imports import ListedTool


def server(**spec: Any) -> ToolServer:
    body = {
        "mcp": {"service": {"name": "files-mcp", "port": 8080}},
        "defaults": {"scopes": ["files:use"]},
    } | spec
    made = manifest("ToolServer", "files", "heist", **body)
    made["metadata"]["uid"] = "u1"
    found = parse(made)
    assert isinstance(found, ToolServer)
    return found


def listed(name: str = "read_file", **fields: Any) -> ListedTool:
    return ListedTool.model_validate({"name": name, "inputSchema": {"type": "object"}} | fields)


def made(definition: ListedTool, **spec: Any) -> Imported:
    found = imported(server(**spec), definition)
    assert isinstance(found, Imported), found
    return found


def reason(definition: ListedTool, **spec: Any) -> str:
    found = imported(server(**spec), definition)
    assert isinstance(found, LeftOut), found
    return found.reason


def test_a_definition_becomes_a_tool_that_the_server_controls() -> None:
    definition = listed(
        title="Read", description="Read a file", outputSchema={"type": "object"},
        annotations={"readOnlyHint": True, "title": "other"},
    )  # fmt: skip

    found = made(definition, defaults={"scopes": ["files:use"], "tags": ["files"]})

    assert found.manifest["metadata"] == {
        "name": "read-file-" + names.object_name("files", "read_file")[-6:],
        "namespace": "heist",
        "labels": {"toolcrib.dev/source": "import"},
        "ownerReferences": [
            {"apiVersion": "toolcrib.dev/v1alpha1", "kind": "ToolServer", "name": "files", "uid": "u1", "controller": True}
        ],
    }  # fmt: skip
    spec = dict(found.manifest["spec"])
    spec.pop("approval", None)
    assert spec == {
        "name": "read_file",
        "server": "files",
        "title": "Read",
        "description": "Read a file",
        "scopes": ["files:use"],
        "tags": ["files"],
        "inputSchema": {"type": "object"},
        "outputSchema": {"type": "object"},
        "backend": {"mcp": {"serverRef": {"name": "files"}, "tool": "read_file"}},
    }


def test_hints_of_the_server_count_only_where_the_toolserver_repeats_them() -> None:
    definition = listed(annotations={"readOnlyHint": True, "destructiveHint": False})
    assert "annotations" not in made(definition).manifest["spec"]
    override = {"tool": "read_file", "annotations": {"idempotentHint": True}}
    assert made(definition, overrides=[override]).manifest["spec"]["annotations"] == {"idempotentHint": True}


def test_an_override_sets_other_values_for_its_tool_alone() -> None:
    override = {
        "tool": "read_file",
        "scopes": ["files:read"],
        "tags": ["x"],
        "title": "T",
        "description": "D",
    }
    spec = made(listed(description="d"), overrides=[override]).manifest["spec"]
    assert [spec[k] for k in ("scopes", "tags", "title", "description")] == [["files:read"], ["x"], "T", "D"]
    assert made(listed("other"), overrides=[override]).manifest["spec"]["scopes"] == ["files:use"]


@pytest.mark.parametrize(
    ("definition", "said"),
    [
        (listed(""), "its name is empty"),
        (listed("a" * 129), "longer than 128"),
        (listed("a\nb"), "control characters"),
        (listed(description="x" * 4097), "its description has 4,097 characters; a Tool holds 4,096. Set a shorter one"),
        (listed(title="x" * 257), "its title has 257 characters"),
        (listed(inputSchema={"type": "array"}), "its inputSchema cannot be used: /type: must be object"),
        (listed(outputSchema={"$ref": "http://x/y"}), "its outputSchema cannot be used"),
        (
            listed(inputSchema={"type": "object", "properties": {"a": {"type": "number", "x-mcp-header": "A"}}}),
            "x-mcp-header",
        ),
        (listed(inputSchema={"type": "object", "default": float("nan")}), ""),
    ],
)  # fmt: skip
def test_a_definition_that_no_tool_can_hold_is_left_out_with_the_reason(
    definition: ListedTool, said: str
) -> None:
    assert said in reason(definition)


def test_a_description_that_is_too_long_is_replaced_by_an_override() -> None:
    override = {"tool": "read_file", "description": "short"}
    assert (
        made(listed(description="x" * 9999), overrides=[override]).manifest["spec"]["description"] == "short"
    )


@pytest.mark.parametrize("name", ["read_file", "a__b", "A.b-C", "x" * 128])
def test_a_name_that_a_tool_may_have_is_its_name(name: str) -> None:
    assert made(listed(name)).name == name


@pytest.mark.parametrize("name", ["echo it", "a/b", "health", "é", "x y" * 42])
def test_another_name_is_made_of_it_and_calls_go_to_the_original(name: str) -> None:
    found = made(listed(name))
    assert found.name != name
    assert found.manifest["spec"]["backend"]["mcp"]["tool"] == name


@given(st.lists(st.text(min_size=1, max_size=128), min_size=2, max_size=20, unique=True))
def test_names_that_are_made_up_are_valid_stable_and_apart(tools: list[str]) -> None:
    found = [tool_name("files", each) for each in tools]
    assert found == [tool_name("files", each) for each in tools]
    assert len(set(found)) == len(tools)
    assert all(0 < len(name) <= 128 and name.isascii() for name in found)


def test_the_mark_covers_what_an_import_writes_and_nothing_that_people_write() -> None:
    base = made(listed(description="d")).manifest

    def mark(**spec: Any) -> bytes:
        found = parse({**base, "spec": {**base["spec"], **spec}})
        return mark_of(found.spec)  # type: ignore[arg-type]

    assert mark() == made(listed(description="d")).mark
    assert mark(examples=["read me"], state="Disabled", message="for now") == mark()
    changes: list[dict[str, Any]] = [
        {"description": "e"}, {"title": "t"}, {"scopes": ["other:use"]}, {"tags": ["t"]},
        {"inputSchema": {"type": "object", "title": "t"}}, {"outputSchema": {}}, {"annotations": {"readOnlyHint": True}},
        {"backend": {"mcp": {"serverRef": {"name": "files"}, "tool": "other"}}},
    ]  # fmt: skip
    assert len({mark(**change) for change in changes} | {mark()}) == len(changes) + 1
