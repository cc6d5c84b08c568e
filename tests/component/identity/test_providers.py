"""Tokens of Keycloak, Entra, Auth0, Okta and Dex mean what the examples say: `examples/issuers/`, read as the registry does."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from provider_tokens import EXAMPLES, ID_TOKENS, SHAPES, Shape, issuer, key, token
from registry_harness import ISSUER, RunningRegistry, binding, running_registry, tool
from toolcrib.errors import TokenRejected
from toolcrib.identity import Identity, Issuer, ScopesPolicy, verify
from toolcrib.resources.bindings import SubjectKind
from toolcrib.wire.publish import PublishedBinding, PublishedSubject

FILES = sorted(EXAMPLES.glob("*.yaml"))
GUIDE = EXAMPLES.parents[1] / "docs" / "guides" / "identity-providers.md"


def proven(shape: Shape, **changed: Any) -> Identity:
    one = issuer(shape.example)
    keys = {one.issuer: {"k": key().public_key()}}
    return verify(token(shape, **changed), issuers={one.issuer: one}, keys=keys, now=time.time())


@pytest.mark.parametrize("name", SHAPES)
def test_an_access_token_says_who_is_asking_by_the_examples_mapping(name: str) -> None:
    shape = SHAPES[name]

    found = proven(shape)

    assert (found.client, found.user, found.groups, found.scopes) == (shape.client, shape.user, shape.groups, shape.scopes)  # fmt: skip


@pytest.mark.parametrize("name", ID_TOKENS)
def test_an_id_token_is_refused_even_with_the_registrys_audience(name: str) -> None:
    with pytest.raises(TokenRejected, match="ID token"):
        proven(ID_TOKENS[name])


@pytest.mark.parametrize("name", [n for n in SHAPES if "a user" in n])
@pytest.mark.parametrize(
    "mark",
    [
        {
            "_claim_names": {"groups": "src1"},
            "_claim_sources": {"src1": {"endpoint": "https://graph.windows.net/…"}},
        },
        {"hasgroups": True},
    ],
)
def test_a_user_of_too_many_groups_is_refused_since_a_deny_might_be_for_one_of_them(
    name: str, mark: dict[str, Any]
) -> None:
    shape = SHAPES[name]
    if issuer(shape.example).claims.groups != "groups":
        mark = {"_claim_names": {issuer(shape.example).claims.groups: "src1"}}
    left_out = {issuer(shape.example).claims.groups or "": ...}
    with pytest.raises(TokenRejected, match="but a link to them"):
        proven(shape, **left_out, **mark)


@pytest.mark.parametrize("name", SHAPES)
def test_a_token_of_one_provider_is_none_of_another(name: str) -> None:
    shape = SHAPES[name]
    trusted = {issuer(f.stem).issuer: issuer(f.stem) for f in FILES if f.stem != shape.example}
    keys = {iss: {"k": key().public_key()} for iss in trusted}
    with pytest.raises(TokenRejected, match="issuer"):
        verify(token(shape), issuers=trusted, keys=keys, now=time.time())


@pytest.fixture(scope="module")
def registry() -> Iterator[RunningRegistry]:
    """One registry that trusts all of them, with a grant for each client, user and group."""
    issuers = [Issuer(issuer=ISSUER, audience=("toolcrib",), scopes=ScopesPolicy.BINDINGS, cluster=True)]
    issuers += [issuer(file.stem) for file in FILES]
    grants: dict[str, PublishedBinding] = {}
    for shape in SHAPES.values():
        iss = issuer(shape.example).issuer
        subjects = [
            PublishedSubject(kind=SubjectKind.GROUP, issuer=iss, name=g) for g in shape.groups - {"Everyone"}
        ]
        if shape.user and not shape.groups:
            subjects.append(PublishedSubject(kind=SubjectKind.USER, issuer=iss, name=shape.user))
        if not shape.user:
            subjects.append(
                PublishedSubject(kind=SubjectKind.OAUTH_CLIENT, issuer=iss, client_id=shape.client)
            )
        for n, subject in enumerate(subjects):
            name = (
                f"{shape.example}-{subject.kind.value}-{n}-{subject.name}".lower()
                .replace("|", "-")
                .replace("/", "-")
            )
            grants[name] = binding("x", ("vault:open",), name=name, subjects=(subject,))
    keys = {one.issuer: {"k": key().public_key()} for one in issuers[1:]}
    with running_registry(
        [tool("vault", scopes=("vault:open",))],
        list(grants.values()),
        issuers=tuple(issuers),
        extra_keys=keys,
    ) as running:
        yield running


@pytest.mark.parametrize("name", SHAPES)
def test_a_token_of_each_shape_gets_the_tools_that_are_bound_to_it(
    registry: RunningRegistry, name: str
) -> None:
    shape = SHAPES[name]
    answer = registry.http.get(
        f"{registry.url}/v1/tools", headers={"Authorization": f"Bearer {token(shape)}"}
    )
    assert answer.status_code == 200, answer.text
    granted = shape.scopes is None or "vault:open" in shape.scopes
    assert [one["name"] for one in answer.json()["tools"]] == (["vault"] if granted else [])


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_the_guide_links_each_example(file: Path) -> None:
    text = GUIDE.read_text(encoding="utf-8")
    body = "\n".join(line for line in file.read_text().splitlines() if not line.startswith("#"))
    assert f"](../../examples/issuers/{file.name})" in text
    assert file.stem != "keycloak" or f"```yaml\n{body}\n```" in text, "the guide shows this one as it is"
    assert yaml.safe_load(body).keys() == {"issuers"}
    assert any(shape.example == file.stem for shape in SHAPES.values())
