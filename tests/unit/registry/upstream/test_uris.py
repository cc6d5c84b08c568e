"""Which URIs of servers are passed on."""

import pytest

from toolcrib_registry.upstream.uris import MOST, Unusable, unusable


@pytest.mark.parametrize(
    "uri",
    [
        "file:///project/src/main.rs",
        "test://template/{id}/data",
        "postgres://database/customers/schema",
        "https://example.com/a?b=c@d#e@f",
        "mailto:somebody@example.com",
        "urn:isbn:0451450523",
        "file:///größe und mehr.txt",
        "x:" + "a" * (MOST - 2),
    ],
)
def test_a_uri_of_any_scheme_is_passed_on(uri: str) -> None:
    assert unusable(uri) is None


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("https://user:pass@example.com/", Unusable.CREDENTIALS),
        ("https://token@example.com/", Unusable.CREDENTIALS),
        ("git+ssh://git:x@example.com", Unusable.CREDENTIALS),
        ("https://{user}:{password}@example.com/", Unusable.CREDENTIALS),
        ("HTTPS://@example.com", Unusable.CREDENTIALS),
        ("file:///a\nb", Unusable.CHARACTERS),
        ("file:///a\x00", Unusable.CHARACTERS),
        ("file:///a\x85b", Unusable.CHARACTERS),
        ("file:///a\u202eb", Unusable.CHARACTERS),
        ("file:///a\u200bb", Unusable.CHARACTERS),
        ("file:///a\ud800b", Unusable.CHARACTERS),
        ("", Unusable.NO_SCHEME),
        ("/etc/passwd", Unusable.NO_SCHEME),
        ("{+uri}", Unusable.NO_SCHEME),
        ("toolcrib://team/files/x", Unusable.RESERVED),
        ("ToolCrib:x", Unusable.RESERVED),
        ("x:" + "a" * (MOST - 1), Unusable.TOO_LONG),
    ],
)
def test_a_uri_that_hides_something_or_authenticates_is_not_passed_on(uri: str, why: Unusable) -> None:
    assert unusable(uri) is why
