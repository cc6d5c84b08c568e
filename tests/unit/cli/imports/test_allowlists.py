"""`toolcrib import mcp allowlists.json`: nobody gets more than the source gives, whatever it says of every agent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from published import CLUSTER, bot, tool
from toolcrib import publishing, resources
from toolcrib.authorizer import Action, Policy, decide
from toolcrib.resources.bindings import AgentScopeBinding
from toolcrib_cli import main as cli
from toolcrib_cli.errors import Exit
from toolcrib_cli.imports import allowlists, manifests

Document = dict[str, Any]
_TOOLS = ("web:search", "web:fetch", "github:read", "github:delete", "shell:run")
_PATTERNS = (*_TOOLS, "web:*", "github:*", "*")


def texts(document: Document) -> list[str]:
    return manifests.of_allowlists(allowlists.of_document(document), "team-a", ["use"])


def specs(document: Document) -> dict[str, Document]:
    """The specs of the bindings, by name."""
    loaded = (each for text in texts(document) for each in yaml.safe_load_all(text) if each)
    return {each["metadata"]["name"]: each["spec"] for each in loaded}


def comments(document: Document) -> str:
    return "\n".join(line for text in texts(document) for line in text.splitlines() if line.startswith("#"))


def callable_tools(document: Document, agent: str, *more: Document) -> set[str]:
    """The tools that Toolcrib lets an agent call, with the cluster's issuer filled in and `more` bindings beside."""
    found = []
    for name, spec in (*specs(document).items(), *((f"more-{n}", spec) for n, spec in enumerate(more))):
        for subject in spec["subjects"]:
            if "issuer" in subject:
                subject["issuer"] = CLUSTER
        text = {"apiVersion": "toolcrib.dev/v1alpha1", "kind": "AgentScopeBinding", "spec": spec}
        resource = resources.parse(text | {"metadata": {"name": name, "namespace": "team-a"}}, strict=True)
        assert isinstance(resource, AgentScopeBinding)
        found.append(publishing.binding(resource))
    policy = Policy.compile(found)
    tools = {
        each: tool(f"team-a/{each.replace(':', '-')}", server=each.split(":")[0], name=each.split(":")[1])
        for each in _TOOLS
    }
    return {
        name
        for name, what in tools.items()
        if decide(bot(name=agent), what, Action.CALL, policy, 1.0).allowed
    }


def source_allows(document: Document, agent: str, name: str) -> bool:
    """Decide as the program does that reads such a file, where a denial also holds for what a pattern allows."""
    own, default = document.get(agent, {}), document.get("default", {})
    servers = own.get("servers") or default.get("servers") or [name.split(":")[0]]
    allow = own.get("allow", []) + default.get("allow", [])
    deny = own.get("deny", []) + default.get("deny", [])
    return (
        name.split(":")[0] in servers
        and any(name.startswith(each.rstrip("*")) for each in allow)
        and not any(name.startswith(each.rstrip("*")) for each in deny)
    )


EVERYTHING = {"scopes": ["use"], "subjects": [{"kind": "ServiceAccount", "name": "other"}]}


@pytest.mark.parametrize(
    ("default", "own", "spec"),
    [
        ({"deny": ["shell:*"]}, {"allow": ["*"]}, {"tools": {"allow": ["*"], "deny": ["shell:*"]}}),
        (
            {"allow": ["web:search"], "deny": ["x"]},
            {"allow": ["github:*"], "deny": ["y"]},
            {"tools": {"allow": ["github:*", "web:search"], "deny": ["y", "x"]}},
        ),
        ({"allow": ["web:search"]}, {}, {"tools": {"allow": ["web:search"]}}),
        ({"allow": ["web:search"]}, {"allow": []}, {"tools": {"allow": ["web:search"]}}),
        (
            {"allow": ["*"], "servers": ["web"]},
            {"servers": ["github"]},
            {"tools": {"allow": ["*"]}, "servers": ["github"]},
        ),
        (
            {"servers": ["web"]},
            {"allow": ["*"], "servers": []},
            {"tools": {"allow": ["*"]}, "servers": ["web"]},
        ),
        ({"deny": ["x"]}, {"allow": ["x"], "deny": ["x"]}, {"tools": {"allow": ["x"], "deny": ["x"]}}),
        (
            {"allow": [], "deny": [], "servers": []},
            {"allow": ["x"], "deny": [], "servers": []},
            {"tools": {"allow": ["x"]}},
        ),
    ],
)
def test_an_agent_has_what_the_default_entry_says_beside_its_own(
    default: Document, own: Document, spec: Document
) -> None:
    subjects = [{"kind": "ServiceAccount", "name": "planner"}]

    assert specs({"default": default, "planner": own})["planner"] == {
        "subjects": subjects,
        "scopes": ["use"],
        **spec,
    }


def test_a_denial_of_the_default_entry_reaches_agents_that_the_file_does_not_name() -> None:
    document = {"default": {"deny": ["shell:*", "github:delete"]}, "planner": {"allow": ["web:*"]}}

    assert callable_tools({}, "other", EVERYTHING) == set(_TOOLS)
    assert callable_tools(document, "other", EVERYTHING) == {"web:search", "web:fetch", "github:read"}
    assert callable_tools(document, "planner") == {"web:search", "web:fetch"}


@pytest.mark.parametrize("name", ["*", "Default", "_default", "team-*", "plan?er"])
def test_an_entry_that_may_mean_every_agent_denies_to_all_and_grants_to_none(name: str) -> None:
    document = {
        name: {"allow": ["web:*"], "deny": ["shell:*"]},
        "planner": {"allow": ["shell:*", "github:*"]},
    }

    assert callable_tools(document, "planner") == {"github:read", "github:delete"}
    assert "shell:run" not in callable_tools(document, "other", EVERYTHING)
    assert f"agent {name}: a binding cannot grant its allow" in comments(document)
    assert {s["name"] for each in specs(document).values() for s in each["subjects"]} == {
        "planner",
        "system:serviceaccounts",
    }


@pytest.mark.parametrize(
    "default",
    [
        {"deny": ["a b"]},
        {"deny": "shell"},
        {"deny": None},
        {"deny": [f"x{n}" for n in range(65)]},
        {"deny": ["x", "x"]},
    ],
)
def test_a_default_entry_that_cannot_be_written_leaves_out_every_agent(default: Document) -> None:
    document = {"planner": {"allow": ["*"]}, "default": default}

    assert specs(document) == {}
    assert "agent planner: default, which applies to every agent, is left out" in comments(document)
    assert "agent default: deny " in comments(document)


def test_denials_that_are_too_many_together_leave_the_agent_out() -> None:
    default = {"deny": [f"x{n}" for n in range(40)]}
    document = {"default": default, "planner": {"allow": ["*"], "deny": [f"y{n}" for n in range(40)]}}

    assert set(specs(document)) == {"every-account"}
    assert "agent planner: with the entries that apply to every agent, deny has 80 entries" in comments(
        document
    )


@pytest.mark.parametrize("agents", [("planner", "Planner", "planner-2"), ("a b", "a-b"), ("计划",), ("!",)])
def test_no_agent_gets_the_account_of_another(agents: tuple[str, ...]) -> None:
    document = {agent: {"allow": [f"x{n}"]} for n, agent in enumerate(agents)}

    made = specs(document)

    assert set(made) == {"planner-2"} & set(agents)
    assert all(spec["tools"]["allow"] == ["x2"] for spec in made.values())
    assert comments(document).count("# Left out: agent") == len(agents) - len(made)


def test_an_agent_without_allow_gets_no_grant_and_keeps_its_denials() -> None:
    document = {
        "reader": {"servers": ["web"]},
        "guard": {"servers": ["web"], "allow": [], "deny": ["shell:*"]},
    }

    assert specs(document) == {
        "guard": {
            "subjects": [{"kind": "ServiceAccount", "name": "guard"}],
            "tools": {"deny": ["shell:*"]},
        }
    }
    assert "agent reader: allow is empty or missing" in comments(document)
    assert "# servers is left out: a denial holds on every server." in comments(document)


_entries = st.fixed_dictionaries(
    {},
    optional={
        "allow": st.lists(st.sampled_from(_PATTERNS), max_size=3, unique=True),
        "deny": st.lists(st.sampled_from(_PATTERNS[:-1]), max_size=2, unique=True),
        "servers": st.lists(st.sampled_from(["web", "github", "shell"]), max_size=2, unique=True),
    },
)


@given(st.dictionaries(st.sampled_from(["default", "planner", "writer"]), _entries))
@example({"default": {"allow": ["web:*"], "servers": ["web"]}, "planner": {"servers": ["github"]}})
def test_an_agent_of_the_file_may_call_what_the_source_allows_and_no_more(document: Document) -> None:
    for agent in document.keys() - {"default"}:
        allowed = {name for name in _TOOLS if source_allows(document, agent, name)}
        assert callable_tools(document, agent) == allowed
    assert callable_tools(document, "stranger") == callable_tools(document, "default") == set()


@pytest.mark.parametrize(
    ("document", "code"),
    [
        ({"default": {"allow": ["web:*"]}}, Exit.FAILED),
        ({"default": {"allow": [], "deny": [], "servers": []}}, Exit.FAILED),
        ({"default": {"allow": ["web:*"]}, "planner": {}}, Exit.OK),
        ({"default": {"deny": ["web:*"]}}, Exit.OK),
    ],
)
def test_the_command_says_what_it_left_out(
    document: Document, code: Exit, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "allowlists.json"
    file.write_text(json.dumps(document))

    with pytest.raises(SystemExit) as ended:
        cli.main(["import", "mcp", str(file), "--scope", "use"])

    printed = capsys.readouterr()
    assert ended.value.code == code
    assert ("left out: 1 agent;" in printed.err) is bool(document["default"].get("allow"))
    assert "ServiceAccount, name: default" not in printed.out
