"""What a person is shown of an access request, and which binding approves it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from manifests import manifest, tool
from toolcrib.resources import parse
from toolcrib.resources.bindings import AgentScopeBinding
from toolcrib_cli.commands import access_requests
from toolcrib_cli.errors import CliError
from toolcrib_cli.output import Format
from toolcrib_cli.requesting.asked import Asked, all_asked, approval, published

USER = {"kind": "User", "issuer": "https://login.example", "name": "ada"}
ACCOUNT = {"kind": "ServiceAccount", "namespace": "heist", "name": "hacker"}


def found(
    *tools: dict[str, Any], subject: dict[str, Any] = ACCOUNT, **metadata: Any
) -> tuple[Asked, list[Any]]:
    """A request for the first of these tools, and all of them as published."""
    known = published(tools)
    spec = {
        "tool": tools[0]["metadata"]["name"],
        "digest": known[0].approval_digest,
        "subject": subject,
        "why": "x\u202e",
    }
    made = manifest("AccessRequest", "one", "heist", **spec)
    made["metadata"] |= {"uid": "u1", **metadata}
    (asked,) = all_asked([made, *tools])
    return asked, known


def test_the_binding_names_one_subject_one_tool_its_scopes_and_an_end() -> None:
    asked, known = found(
        tool("files", server="local", scopes=["a:use", "b:use"], scopeMatch="All"), tool("files", "vault")
    )
    made = approval(asked, known[:1], 1_800_000_000)
    assert isinstance(parse(made, strict=True), AgentScopeBinding)
    assert made["spec"] == {
        "subjects": [ACCOUNT],
        "scopes": ["a:use", "b:use"],
        "tools": {"allow": ["local:files"]},
        "expiresAt": "2027-01-15T08:00:00Z",
    }
    assert made["metadata"]["ownerReferences"][0]["uid"] == "u1"


def test_a_second_tool_of_that_name_and_scope_is_in_the_way_and_another_scope_is_not() -> None:
    asked, known = found(
        tool("files"),
        manifest("Tool", "other", "heist", **{**tool("files")["spec"], "name": "files", "server": "s"}),
    )
    with pytest.raises(CliError, match="heist/other has the same name and scope"):
        approval(asked, known, 1_800_000_000)
    asked, known = found(
        tool("files"),
        manifest("Tool", "other", "heist", **{**tool("other")["spec"], "name": "files", "server": "s"}),
    )
    assert approval(asked, known, 1_800_000_000)["spec"]["tools"] == {"allow": ["files"]}


@pytest.mark.parametrize(
    "edit", [{"description": "another"}, {"scopes": ["other:use"]}, {"backend": {"none": {}}}], ids=str
)
def test_a_tool_that_changed_in_definition_scopes_or_backend_is_not_approved(edit: dict[str, Any]) -> None:
    asked, _ = found(tool("files"))
    now = tool("files", **edit)
    body = {
        **manifest(
            "AccessRequest",
            "one",
            "heist",
            **asked.request.spec.model_dump(by_alias=True, mode="json", exclude_none=True),
        )
    }
    (again,) = all_asked([body, now])
    assert again.changed
    with pytest.raises(CliError, match="has changed since heist/hacker asked"):
        approval(again, published([now]), 1_800_000_000)
    (gone,) = all_asked([body])
    with pytest.raises(CliError, match="there is no Tool heist/files any more"):
        approval(gone, [], 1_800_000_000)


def test_what_was_rejected_is_not_approved_and_words_are_shown_escaped() -> None:
    asked, known = found(tool("files"), annotations={"toolcrib.dev/rejected": "no\u202e"})
    assert (asked.state, asked.why) == ("rejected", '"x\\u202e"')
    with pytest.raises(CliError, match=r"heist/one is rejected: no\\u202e"):
        approval(asked, known, 1_800_000_000)


def test_the_subject_is_known_by_the_api_servers_name() -> None:
    account, _ = found(tool("files"))
    user, _ = found(tool("files"), subject=USER)
    assert account.is_asked_by("system:serviceaccount:heist:hacker")
    assert not account.is_asked_by("system:serviceaccount:heist:other")
    for name in (
        "ada",
        "oidc:ada",
        "https://login.example#ada",
        "corp-ada",
        "corp_ada",
        "CORP\\\\ada",
        "corpada",
    ):
        assert user.is_asked_by(name), "no prefix is known here, so that each counts"
    for name in ("bob", "ad", "ada:bob", "oidc:Bob"):
        assert not user.is_asked_by(name)
    assert user.who == "User ada of https://login.example"


Bodies = list[dict[str, Any]]


def bodies(now: dict[str, Any], **metadata: Any) -> Bodies:
    """A request for the tool `files`, and what that tool is by now."""
    digest = published([tool("files")])[0].approval_digest
    made = manifest("AccessRequest", "one", "heist", tool="files", digest=digest, subject=ACCOUNT, why="")
    made["metadata"] |= {"uid": "u1", **metadata}
    return [made, now]


class Raced:
    """A cluster in which something happens while the binding is written."""

    def __init__(self, meanwhile: Bodies | None) -> None:
        self.meanwhile = meanwhile
        self.granted: list[Mapping[str, Any]] = []
        self.revoked: list[Mapping[str, Any]] = []

    def objects(self, namespace: str | None) -> list[Mapping[str, Any]]:
        if not self.granted:
            return [*bodies(tool("files"))]
        if self.meanwhile is None:
            raise CliError("cannot list accessrequests")
        return [*self.meanwhile]

    def username(self) -> str | None:
        return "approver"

    def grant(self, binding: Mapping[str, Any]) -> None:
        self.granted.append(binding)

    def revoke(self, binding: Mapping[str, Any]) -> None:
        self.revoked.append(binding)

    def reject(self, asked: Asked, reason: str) -> None:
        raise AssertionError


def approve(raced: Raced, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def source(*where: Any) -> Iterator[Raced]:
        yield raced

    monkeypatch.setattr(access_requests, "_source", source)
    access_requests.approve("one", "1h", yes=True, out=Format.TABLE)


@pytest.mark.parametrize(
    "meanwhile",
    [
        pytest.param(bodies(tool("files", description="another")), id="the tool was edited"),
        pytest.param(bodies(tool("other")), id="the tool was deleted"),
        pytest.param(
            bodies(tool("files"), annotations={"toolcrib.dev/rejected": "no"}), id="somebody rejected it"
        ),
        pytest.param(bodies(tool("files"), uid="u2"), id="it was recreated"),
        pytest.param([tool("files")], id="it was deleted"),
        pytest.param([], id="the namespace was deleted"),
    ],
)
def test_an_approval_is_taken_back_if_request_or_tool_became_another_while_it_was_written(
    meanwhile: Bodies, monkeypatch: pytest.MonkeyPatch
) -> None:
    raced = Raced(meanwhile)
    with pytest.raises(
        CliError, match="heist/one is not approved: the request or its tool changed meanwhile"
    ):
        approve(raced, monkeypatch)
    assert raced.revoked == raced.granted != []


def test_an_approval_is_taken_back_if_nobody_can_say_what_happened_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raced = Raced(None)
    with pytest.raises(CliError, match="cannot list accessrequests"):
        approve(raced, monkeypatch)
    assert raced.revoked == raced.granted != []


def test_an_approval_stays_if_nothing_happened_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    raced = Raced(bodies(tool("files"), resourceVersion="2"))
    approve(raced, monkeypatch)
    assert (len(raced.granted), raced.revoked) == (1, [])
