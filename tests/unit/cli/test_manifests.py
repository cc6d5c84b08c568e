"""Reading manifests from files: every problem has a file and a line, and nothing is half taken."""

from pathlib import Path

import pytest

from toolcrib_cli import manifests
from toolcrib_cli.local.folders import Folders
from toolcrib_operator.objects import Ref
from toolcrib_operator.world import World

TOOL = """\
apiVersion: toolcrib.dev/v1alpha1
kind: Tool
metadata:
  name: {name}
  namespace: demo
spec:
  description: {description}
  scopes: [demo:use]
  backend:
    http:
      service: {{name: tools, port: 80}}
"""


def write(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (TOOL.format(name="a", description="x") + "  colour: red\n", 12, "unknown field"),
        (TOOL.format(name="a", description="x").replace("[demo:use]", "[]"), 8, "empty list"),
        (TOOL.format(name="a", description="x").replace("[demo:use]", "demo:use"), 8, "must be a list"),
        (
            TOOL.format(name="a", description="x").replace("[demo:use]", "[demo:use, 'registry:admin']"),
            6,
            "registry:*",
        ),
        (TOOL.format(name="a", description="x").replace("port: 80", "port: '80'"), 11, "integer"),
        (TOOL.format(name="A_b", description="x"), 4, "must be parts joined by '.'"),
        (TOOL.format(name="a", description="x") + "  scopes: [other]\n", 12, "duplicate key 'scopes'"),
        (TOOL.format(name="a", description="[") + "\n", 9, "not valid YAML"),
        ("kind: Tool\nspec: {}\n", 1, "apiVersion"),
        ("- just\n- a list\n", 1, "a manifest must be a mapping"),
        ("a: &a [x]\nb: *nothing\n", 2, "undefined alias"),
    ],
)
def test_a_problem_names_its_line_and_what_is_wrong(
    tmp_path: Path, text: str, line: int, message: str
) -> None:
    content = manifests.read(write(tmp_path, "a.yaml", text))
    assert content.refused
    assert next(p.line for p in content.problems) == line
    assert message in str(content.problems[0])


def test_the_second_document_of_a_file_counts_lines_from_the_top_of_the_file(tmp_path: Path) -> None:
    text = (
        TOOL.format(name="a", description="x")
        + "---\n"
        + TOOL.format(name="b", description="x")
        + "  nope: 1\n"
    )
    content = manifests.read(write(tmp_path, "a.yaml", text))
    assert [p.line for p in content.problems] == [24]


def test_times_and_odd_words_stay_text_as_they_do_in_kubernetes(tmp_path: Path) -> None:
    text = (
        "apiVersion: toolcrib.dev/v1alpha1\nkind: AgentScopeBinding\nmetadata: {name: b}\nspec:\n"
        "  subjects: [{kind: ServiceAccount, name: bot}]\n  scopes: [a]\n  expiresAt: 2027-01-01T00:00:00Z\n"
    )
    content = manifests.read(write(tmp_path, "b.yaml", text))
    assert not content.problems
    assert content.objects[0].body["spec"]["expiresAt"] == "2027-01-01T00:00:00Z"


def test_other_kinds_are_named_and_skipped(tmp_path: Path) -> None:
    text = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n---\n" + TOOL.format(
        name="a", description="x"
    )
    content = manifests.read(write(tmp_path, "a.yaml", text))
    assert content.skipped == ["Deployment web"]
    assert [o.name for o in content.objects] == ["a"]


def test_a_list_is_read_item_by_item(tmp_path: Path) -> None:
    text = '{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}}]}'
    assert [o.kind for o in manifests.read(write(tmp_path, "a.json", text)).objects] == ["Namespace"]


def test_an_unsafe_schema_is_reported_but_does_not_refuse_the_file(tmp_path: Path) -> None:
    text = (
        TOOL.format(name="a", description="x")
        + "  inputSchema: {type: object, properties: {x: {pattern: '(?=a)'}}}\n"
    )
    content = manifests.read(write(tmp_path, "a.yaml", text))
    assert not content.refused
    assert "SchemaUnsafe" in str(content.problems[0])


def test_a_broken_edit_changes_nothing_and_a_mended_one_takes_effect(tmp_path: Path) -> None:
    file = write(tmp_path, "a.yaml", TOOL.format(name="a", description="one"))
    world = World()
    folders = Folders([tmp_path], world)
    folders.load()
    ref = Ref("Tool", "demo/a")

    def description() -> str:
        entry = world.get(ref)
        assert entry is not None
        assert entry.resource is not None
        return str(entry.resource.spec.description)  # type: ignore[union-attr]

    write(tmp_path, "a.yaml", TOOL.format(name="a", description="two") + "  nope: 1\n")
    broken = folders._look()
    assert [p.line for p in broken.problems] == [12]
    assert not broken.changed
    assert description() == "one"

    write(tmp_path, "a.yaml", TOOL.format(name="a", description="three, mended"))
    assert [c.name for c in folders._look().changed] == ["a"]
    assert description() == "three, mended"

    file.unlink()
    assert folders._look().removed == (("Tool", "demo", "a"),)
    assert world.get(ref) is None


def test_the_same_object_in_a_second_file_is_refused_and_the_first_stays(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", TOOL.format(name="a", description="first"))
    folders = Folders([tmp_path], World())
    assert not folders.load().problems
    write(tmp_path, "b.yaml", TOOL.format(name="a", description="second"))
    change = folders._look()
    assert "stands at" in str(change.problems[0])
    assert not change.changed


def test_accounts_are_those_that_manifests_declare_or_bindings_name() -> None:
    folders = Folders([Path(__file__).parents[3] / "examples" / "heist"], World())
    folders.load()
    assert folders.accounts == ["heist/hacker", "heist/planner", "heist/safecracker"]
    assert folders.services == ["heist/example-tools"]


def _laughs(document: str, kind: str = "{items}") -> str:
    rows = ["x0: &x0 " + kind.format(items="[1, 1, 1, 1, 1, 1, 1, 1, 1]")]
    rows += [f"x{i}: &x{i} " + kind.format(items=f"[{', '.join([f'*x{i - 1}'] * 9)}]") for i in range(1, 9)]
    return document + "".join(f"{row}\n" for row in rows)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (_laughs("kind: List\napiVersion: v1\n"), "aliases expanded"),
        (
            _laughs("", "{{kind: List, apiVersion: v1, items: {items}}}") + "kind: List\nitems: [*x8]\n",
            "aliases",
        ),
        ("a: " + "{a: " * 100_000, "nested deeper than 100 levels"),
        ("- " * 100_000 + "a\n", "nested deeper than 100 levels"),
        ("kind: {a: b}\n", "apiVersion and kind are required"),
        ("apiVersion: toolcrib.dev/v1alpha1\nkind: [Tool]\n", "unknown kind"),
        (TOOL.format(name="a", description="9" * 10_000), "a whole number that long is refused"),
        (
            "kind: Service\napiVersion: v1\nmetadata: {name: a, namespace: [b]}\n",
            "metadata.namespace: must be a",
        ),
        (
            "kind: Namespace\napiVersion: v1\nmetadata: {name: a, labels: 7}\n",
            "metadata.labels: must be a mapping",
        ),
        (
            "kind: Secret\napiVersion: v1\nmetadata: {name: a}\nstringData: {a: 1}\n",
            "stringData: must be a mapping",
        ),
    ],
)
def test_a_hostile_file_is_a_problem_and_neither_an_exception_nor_a_bomb(
    tmp_path: Path, text: str, message: str
) -> None:
    content = manifests.read(write(tmp_path, "a.yaml", text))
    assert content.refused
    assert message in str(content.problems[0])


@pytest.mark.parametrize(
    ("field", "before", "after"),
    [("server", "old", "new"), ("server", "old", None), ("server", None, "new"), ("name", "one", "two")],
)
def test_an_edit_of_an_immutable_field_changes_nothing_until_the_tool_was_away(
    tmp_path: Path, field: str, before: str | None, after: str | None
) -> None:
    def text(value: str | None) -> str:
        return TOOL.format(name="a", description="x") + (f"  {field}: {value}\n" if value else "")

    world = World()
    file = write(tmp_path, "a.yaml", text(before))
    folders = Folders([tmp_path], world)
    folders.load()

    def held() -> str | None:
        entry = world.get(Ref("Tool", "demo/a"))
        assert entry is not None
        return getattr(entry.resource.spec, field)  # type: ignore[union-attr, no-any-return]

    # another file of the same object is an edit too
    file.unlink()
    other = write(tmp_path, "b.yaml", text(after))
    refused = folders._look()
    assert [p.finding.field for p in refused.problems] == [f"spec.{field}"]
    assert "is immutable" in str(refused.problems[0])
    other.unlink()
    folders._look()
    write(tmp_path, "c.yaml", text(after))
    assert not folders._look().problems
    assert held() == after


def test_a_list_whose_entries_are_all_refused_is_not_called_empty(tmp_path: Path) -> None:
    file = write(tmp_path, "a.yaml", TOOL.format(name="a", description="x").replace("demo:use", "bad scope"))
    (problem,) = manifests.read(file).problems
    assert "spec.scopes[0]: must be a scope, as in calculator:use" in str(problem)
