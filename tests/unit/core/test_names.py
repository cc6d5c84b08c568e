"""Patterns match whole, ignoring case, and never across servers; an oracle of a few lines agrees."""

import re
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toolcrib import names
from toolcrib.names import ToolPattern, glob_covers, glob_matches


def fits(pattern: str, text: str) -> bool:
    """The oracle: recursion over both texts, nothing else."""
    if not pattern:
        return not text
    if pattern[0] == "*":
        return fits(pattern[1:], text) or (bool(text) and fits(pattern, text[1:]))
    return bool(text) and pattern[0] in ("?", text[0]) and fits(pattern[1:], text[1:])


def means(pattern: str, namespace: str, server: str | None, name: str) -> bool:
    head, colon, tail = pattern.partition(":")
    if not colon:
        return fits(pattern.lower(), name.lower())
    if server is None or not fits(tail.lower(), name.lower()):
        return False
    space, slash, only = head.partition("/")
    if not slash:
        return fits(head.lower(), server.lower())
    return fits(space.lower(), namespace.lower()) and fits(only.lower(), server.lower())


LETTERS = st.text("abA._-", max_size=6)
GLOBS = st.text("abB*?._-", min_size=1, max_size=6)


@given(GLOBS, LETTERS)
@example("**a", "a")
@example("*a*b", "aab")
@example("a*", "a\n")
def test_a_glob_means_what_the_oracle_says(pattern: str, text: str) -> None:
    assert glob_matches(pattern, text) is fits(pattern.lower(), text.lower())


@given(
    st.one_of(
        GLOBS,
        st.builds("{}:{}".format, GLOBS, GLOBS),
        st.builds("{}/{}:{}".format, GLOBS, GLOBS, GLOBS),
        st.builds("{}:{}:{}".format, GLOBS, GLOBS, GLOBS),
    ),
    LETTERS,
    st.none() | LETTERS,
    LETTERS,
)
def test_a_pattern_means_what_the_oracle_says(
    pattern: str, namespace: str, server: str | None, name: str
) -> None:
    found = ToolPattern.parse(pattern).matches(namespace=namespace, server=server, name=name)

    assert found is means(pattern, namespace, server, name)


@pytest.mark.parametrize(
    ("pattern", "server", "name", "matches"),
    [
        ("delete_repo", "github", "delete_repo", True),
        ("delete_repo", None, "delete_repo", True),
        ("web:delete_repo", "github", "delete_repo", False),
        ("github:delete_repo", "github", "delete_repo", True),
        ("github:delete_repo", None, "delete_repo", False),
        ("*:*", None, "delete_repo", False),
        ("github:*", "github", "", True),
        ("git*:read_?", "GitHub", "READ_a", True),
        ("read", "github", "read_all", False),
        ("read", "github", "pre_read", False),
        ("READ_*", "github", "read_all", True),
        ("a:b:c", "a", "b:c", True),
        ("read.all", "github", "readxall", False),
    ],
)
def test_patterns_split_at_the_first_colon_and_match_whole(
    pattern: str, server: str | None, name: str, matches: bool
) -> None:
    assert ToolPattern.parse(pattern).matches(namespace="ns", server=server, name=name) is matches


@given(GLOBS, GLOBS, LETTERS)
@example("*", "a*?", "ab")
@example("a?", "a*", "ab")
@example("*b", "a*b*b", "abb")
def test_a_glob_covers_another_only_if_it_matches_whatever_that_one_matches(
    outer: str, inner: str, text: str
) -> None:
    if glob_covers(outer, inner) and glob_matches(inner, text):
        assert glob_matches(outer, text)


@pytest.mark.parametrize(
    ("outer", "inner", "covered"),
    [
        ("*", "read_*", True),
        ("read_*", "READ_all", True),
        ("read_*", "read_*", True),
        ("read_?", "read_?", True),
        ("read_?", "read_*", False),
        ("read_*", "*", False),
        ("delete_*", "github:delete_*", True),
        ("github:*", "github:delete_?", True),
        ("github:*", "delete_repo", False),
        ("git*:*", "github:x", True),
        ("github:x", "git*:x", False),
        ("team-a/github:*", "team-a/github:x", True),
        ("team-a/github:*", "*/github:x", False),
        ("*/github:*", "team-a/github:x", True),
    ],
)
def test_a_pattern_covers_what_is_no_more_than_itself(outer: str, inner: str, covered: bool) -> None:
    assert names.covers(ToolPattern.parse(outer), ToolPattern.parse(inner)) is covered


def test_a_hostile_glob_is_matched_in_bounded_time() -> None:
    started = time.process_time()

    assert not glob_matches("*a" * 60 + "b", "a" * 128)

    assert time.process_time() - started < 0.5


@pytest.mark.parametrize("scope", ["registry:write", "registry:", "Registry:Admin", "REGISTRY:x"])
def test_the_registrys_own_scopes_are_reserved_in_any_case(scope: str) -> None:
    assert names.is_reserved_scope(scope)


@pytest.mark.parametrize("scope", ["registry", "registryx:write", "my:registry:write", ""])
def test_other_scopes_are_not_reserved(scope: str) -> None:
    assert not names.is_reserved_scope(scope)


@given(st.text(max_size=200), st.none() | st.text(max_size=80))
def test_an_object_name_is_a_kubernetes_name_and_tells_servers_apart(name: str, server: str | None) -> None:
    made = names.object_name(server, name)

    assert re.fullmatch(names.DNS_LABEL[1:-1], made)
    assert made == names.object_name(server, name)
    assert made != names.object_name((server or "") + "x", name)
