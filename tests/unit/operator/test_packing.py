"""What the operator keeps of a Tool is what stands in it, or nothing."""

from typing import Any

import pytest

from manifests import tool
from toolcrib.errors import SchemaUnsafe
from toolcrib.resources.kinds import parse
from toolcrib.resources.tools import Tool
from toolcrib.schemas.safety import check
from toolcrib_operator.packing import packed_tool

ODD: tuple[dict[Any, Any], ...] = (
    {1: {"type": "string"}},
    {None: {}},
    {True: {}},
    {1.5: {}},
    {"1": {"type": "string"}, 1: {"type": "integer"}},
)


def made(properties: dict[Any, Any]) -> Tool:
    manifest = tool("odd")
    manifest["spec"]["inputSchema"] = {"type": "object", "properties": properties}
    resource = parse(manifest)
    assert isinstance(resource, Tool)
    return resource


@pytest.mark.parametrize("properties", ODD, ids=str)
def test_a_schema_whose_keys_are_not_text_is_not_kept_as_another_one_and_is_refused(
    properties: dict[Any, Any],
) -> None:
    assert packed_tool(made(properties), condense=True) is None
    with pytest.raises(SchemaUnsafe, match="is not text; write it in quotes"):
        check({"properties": properties})


def test_a_schema_is_read_again_as_it_was() -> None:
    one = made({"a": {"type": "integer", "minimum": -1.5, "enum": [1, 2**70, None]}, "\u00fc": {}})
    packed = packed_tool(one, condense=True)
    assert packed is not None
    metadata = {"name": "odd", "namespace": "heist"}
    assert packed.read(metadata, one.api_version, schemas=True).spec == one.spec
