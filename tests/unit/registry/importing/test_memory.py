"""What lists take as objects while they are read: the bounds on how many are read at once follow from it."""

import tracemalloc

import pytest

from toolcrib_registry.importing.importer import AT_ONCE
from toolcrib_registry.importing.watch import SMALL
from toolcrib_registry.upstream import messages

MOST = 256 << 20


@pytest.mark.parametrize("entry", ["[]", "{}", "[[]]", "[[[]]]", "[{}]", '{"":0}', '{"":[]}', '"ab"'])
def test_small_lists_that_are_read_at_once_stay_below_256_mib_whatever_they_hold(entry: str) -> None:
    """The entries are those whose objects take most memory for each byte of JSON."""
    text = f"[{','.join([entry] * (SMALL // (len(entry) + 1)))}]".encode()
    tracemalloc.start()
    try:
        value = messages.parsed(text)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(value) > 1
    assert taken > 8 * len(text), "measured"
    assert AT_ONCE * taken < MOST
