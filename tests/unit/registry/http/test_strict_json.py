"""JSON as it is accepted: what is read, the standard library reads just so; what two parsers may read in two ways is refused."""

import json
import math
import random
from typing import Any

import pytest

from toolcrib_registry.http.strict_json import InvalidJson, parse

PIECES = [
    "{", "}", "[", "]", ",", ":", '"a"', '"b"', '"a:b"', '"\\""', '"\\\\"', '"\\u0041"', '"é"', '"\\ud83d\\ude00"',
    "1", "-0", "0", "-0.0", "1e5", "2.50",
    "9007199254740993", "18446744073709551615", "18446744073709551616", "123456789012345678901234567890", "1.7976931348623157e308", "5e-324",
    "0.1234567890123456789", "true", "null", " ",
]  # fmt: skip


def document(rng: random.Random, depth: int = 4) -> str:
    match rng.randrange(3) if depth else 0:
        case 1:
            return "[" + ",".join(document(rng, depth - 1) for _ in range(rng.randrange(4))) + "]"
        case 2:
            members = [
                f"{rng.choice(PIECES[6:14])}:{document(rng, depth - 1)}" for _ in range(rng.randrange(5))
            ]
            return "{ " + " , ".join(members) + "}"
    return rng.choice(PIECES[6:-1])


def duplicate(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise KeyError
    return dict(pairs)


def test_what_is_read_is_what_the_standard_library_reads() -> None:
    rng, refused = random.Random(14), 0
    for _ in range(5_000):
        text = document(rng)
        try:
            expected = json.loads(text, object_pairs_hook=duplicate)
        except KeyError:
            refused += 1
            with pytest.raises(InvalidJson, match="appears twice in one object"):
                parse(text.encode())
            continue
        found = parse(text.encode())
        assert repr(found) == repr(expected), text  # tells 1 from 1.0 and from True, and -0.0 from 0
    assert 100 < refused < 4_000


def test_what_is_no_json_is_refused() -> None:
    rng = random.Random(15)
    for _ in range(5_000):
        text = "".join(rng.choice(PIECES) for _ in range(rng.randrange(6)))
        try:
            json.loads(text)
        except ValueError:
            with pytest.raises(InvalidJson):
                parse(text.encode())


@pytest.mark.parametrize(
    "text", [b"NaN", b"[Infinity]", b"1e999", b'"\\ud800"', b'"\xff"', b"\xef\xbb\xbf1", b"9" * 5_000]
)
def test_what_the_standard_library_reads_and_others_do_not_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidJson):
        parse(text)


def test_a_bracket_in_a_string_is_no_level() -> None:
    assert parse(b'["[[[[", "\\"[[["]', max_depth=1) == ["[[[[", '"[[[']
    with pytest.raises(InvalidJson, match="nested deeper than 1 levels"):
        parse(b"[[]]", max_depth=1)
    assert math.isclose(parse(b"0.1"), 0.1)
