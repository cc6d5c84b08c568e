"""What is wrong with a manifest is said in words, with what may have been meant."""

from collections.abc import Iterator
from typing import Any

import pytest

from toolcrib.errors import InvalidManifest
from toolcrib.resources.kinds import KINDS, parse
from toolcrib.resources.mistakes import WORDS, close

GOOD: dict[str, Any] = {
    "apiVersion": "toolcrib.dev/v1alpha1",
    "kind": "Tool",
    "metadata": {"name": "calculator", "namespace": "heist"},
    "spec": {
        "name": "calculator",
        "description": "Compute.",
        "scopes": ["calculator:use"],
        "backend": {"http": {"service": {"name": "tools", "port": 80}}},
    },
}


def said(**changes: Any) -> list[str]:
    """What is said of the tool with these fields of its spec."""
    with pytest.raises(InvalidManifest) as refused:
        parse(GOOD | {"spec": GOOD["spec"] | changes}, strict=True)
    return [str(finding) for finding in refused.value.findings]


def patterns(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("pattern"), str):
            yield schema["pattern"]
        for inner in schema.values():
            yield from patterns(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from patterns(inner)


@pytest.mark.parametrize("kind", KINDS)
def test_every_pattern_of_a_spec_has_words(kind: str) -> None:
    schema = KINDS[kind].model.model_json_schema(by_alias=True)
    status = {name for name in schema["$defs"] if "Status" in name or "Condition" in name}
    specs = {name: inner for name, inner in schema["$defs"].items() if name not in status}

    assert sorted(set(patterns(specs)) - WORDS.keys()) == []


def test_no_words_are_a_regular_expression() -> None:
    assert [
        words for words in WORDS.values() if any(mark in words for mark in ("^", "$", "{", "[", "\\"))
    ] == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"name": "a b"}, "spec.name: must be 1 to 128 letters, digits, '_', '.' or '-'"),
        ({"scopes": "x:y"}, "spec.scopes: must be a list"),
        ({"scopes": []}, "spec.scopes: an empty list is refused"),
        ({"inputSchema": []}, "spec.inputSchema: must be an object"),
        ({"description": 5}, "spec.description: must be text"),
        ({"state": "Gone"}, "spec.state: must be 'Active', 'Deprecated' or 'Disabled'"),
        ({"descripton": "x"}, "spec.descripton: unknown field (did you mean description?)"),
        (
            {"backend": {"http": {"url": "http://x", "timout": "1s"}}},
            "spec.backend.http.timout: unknown field (did you mean timeout?)",
        ),
        (
            {"backend": {"http": {"service": {"name": "tools", "prot": 80}}}},
            "spec.backend.http.service.prot: unknown field (did you mean port?)",
        ),
        (
            {"backend": {"http": {"url": "http://x", "auth": {"type": "Bearer"}}}},
            "spec.backend.http.auth: unknown field (it is a field of spec.backend)",
        ),
        (
            {"backend": {"url": "http://x"}},
            "spec.backend.url: unknown field (it is a field of spec.backend.http)",
        ),
    ],
)
def test_a_mistake_is_told_with_what_is_expected_or_meant(changes: dict[str, Any], expected: str) -> None:
    assert any(finding.startswith(expected) for finding in said(**changes)), said(**changes)


def test_a_list_whose_entries_are_refused_in_their_depth_is_not_called_empty() -> None:
    binding = {
        "apiVersion": "toolcrib.dev/v1alpha1",
        "kind": "AgentScopeBinding",
        "metadata": {"name": "b", "namespace": "heist"},
        "spec": {"subjects": [{"kind": "ServiceAcount", "name": "x"}], "scopes": ["a:b"]},
    }
    with pytest.raises(InvalidManifest) as refused:
        parse(binding, strict=True)

    (finding,) = refused.value.findings
    assert str(finding).startswith("spec.subjects[0].kind: must be 'ServiceAccount'")


@pytest.mark.parametrize("kind", ["Tol", "tool", "AgentScopeBindng"])
def test_a_kind_that_is_nearly_one_is_told_which(kind: str) -> None:
    with pytest.raises(InvalidManifest, match=r"did you mean (Tool|AgentScopeBinding)"):
        parse(GOOD | {"kind": kind})


def test_what_is_near_to_nothing_is_told_all_that_is_known() -> None:
    assert close("zzz", ["alpha", "beta"]) == "known: alpha, beta"
    assert close("zzz", []) == ""
    assert close("ALPA", ["alpha", "beta"]) == "did you mean alpha?"


def test_values_are_not_repeated() -> None:
    told = said(name="hunter2 hunter2", scopes=["hunter 3"], backend={"http": {"url": "http://u:hunter4@x"}})

    assert len(told) == 3
    assert not any("hunter" in each for each in told)
