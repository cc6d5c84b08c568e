"""Random pieces for ids: no two alike, in no thread and in no child."""

import os
from concurrent.futures import ThreadPoolExecutor

from toolcrib import entropy


def test_no_piece_is_given_twice() -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: entropy.piece(), range(5_000)))

    assert {len(piece) for piece in found} == {entropy.SIZE}
    assert len(set(found)) == len(found)


def test_a_child_gets_none_of_its_parents_pieces() -> None:
    entropy.piece()
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writer, entropy.piece())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(reader, 100)
    os.close(reader)
    os.close(writer)

    assert theirs not in {entropy.piece() for _ in range(300)}
