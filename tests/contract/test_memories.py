"""What agents' memories promise on every database."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from toolcrib_cli.session_store.database import Database
from toolcrib_cli.session_store.memories import BEGINNING, OLDER, Memories, MemoryFull, Owner
from toolcrib_cli.session_store.tables import MEMORIES

HACKER = Owner("https://issuer", "system:serviceaccount:heist:hacker")
OTHERS = [
    Owner("https://issuer", "system:serviceaccount:heist:planner"),
    Owner("https://issuer", "system:serviceaccount:other:hacker"),
    Owner("https://elsewhere", HACKER.subject),
]


def test_messages_come_back_in_the_order_in_which_they_were_stored(database: Database) -> None:
    memories = Memories(database, most=100)
    counts = [memories.keep(HACKER, "s", turn, f"message {turn}") for turn in (3, 1, 2, 2**31 - 1)]
    found = memories.recall(HACKER, "s", 2)

    assert counts == [1, 2, 3, 4]
    assert [(m.turn, m.message) for m in found.older] == [(3, "message 3"), (1, "message 1")]
    assert [(m.turn, m.message) for m in found.recent] == [
        (2, "message 2"),
        (2**31 - 1, f"message {2**31 - 1}"),
    ]
    assert found.count == 4


def test_the_order_is_that_of_storing_though_the_clock_was_set_back(database: Database) -> None:
    times = iter((2e9, 1e9, 1.5e9))
    memories = Memories(database, most=100, clock=lambda: next(times))
    for turn in range(3):
        memories.keep(HACKER, "s", turn, "m")

    assert [m.turn for m in memories.recall(HACKER, "s", 3).recent] == [0, 1, 2]


def test_a_message_that_comes_again_is_stored_once_and_another_of_its_turn_beside_it(
    database: Database,
) -> None:
    memories = Memories(database, most=2)

    assert [memories.keep(HACKER, "s", 1, "first") for _ in range(3)] == [1, 1, 1]
    assert memories.keep(HACKER, "s", 1, "second") == 2
    assert (
        memories.keep(HACKER, "s", 1, "first") == 2
    )  # acknowledged again, though the agent can store no more
    assert [m.message for m in memories.recall(HACKER, "s", 9).recent] == ["first", "second"]


@pytest.mark.guarantee
def test_an_agents_memory_is_its_own_and_a_sessions_too(database: Database) -> None:
    memories = Memories(database, most=100)
    memories.keep(HACKER, "s", 1, "secret")

    for agent in OTHERS:
        assert memories.recall(agent, "s", 3).count == 0
        assert memories.recall(agent, "s", 3).recent == []
    assert memories.recall(HACKER, "S", 3).count == 0
    assert memories.recall(HACKER, "s", 3).count == 1


@pytest.mark.parametrize(
    "text", ["ü" * 16_384, "𝔘\u202e\ud7ff\n\r\t\u2028", "'; DROP TABLE memories; --", " "]
)
def test_any_text_comes_back_as_it_was(database: Database, text: str) -> None:
    memories = Memories(database, most=100)
    memories.keep(HACKER, text[:100], 1, text)

    assert memories.recall(HACKER, text[:100], 1).recent[0].message == text


def test_a_recall_reads_bounded_parts_of_many_long_messages(database: Database) -> None:
    memories = Memories(database, most=1_000)
    for turn in range(OLDER + 10):
        memories.keep(HACKER, "s", turn, f"{turn} " + "x" * 3_000)
    found = memories.recall(HACKER, "s", 3)

    assert (len(found.older), found.count) == (OLDER, OLDER + 10)
    assert {len(m.message) for m in found.older} == {BEGINNING}
    assert found.older[-1].turn == OLDER + 6
    assert len(found.recent[0].message) > 3_000


def test_a_full_memory_refuses_what_is_new_and_keeps_what_it_has(database: Database) -> None:
    memories = Memories(database, most=2)
    for turn in range(2):
        memories.keep(HACKER, f"s{turn}", turn, "m")
    with pytest.raises(MemoryFull, match="2 messages"):
        memories.keep(HACKER, "s2", 2, "m")

    assert [memories.recall(HACKER, f"s{turn}", 1).count for turn in range(3)] == [1, 1, 0]
    assert memories.keep(OTHERS[0], "s", 1, "others are not concerned") == 1


def test_old_messages_are_deleted_and_no_others(database: Database) -> None:
    rows = [
        {"issuer": HACKER.issuer, "subject": HACKER.subject, "session": "s", "number": n, "turn": n, "digest": "d",
         "message": "m", "stored_at": float(n)}
        for n in range(2_500)
    ]  # fmt: skip
    with database.transaction() as connection:
        connection.execute(MEMORIES.insert(), rows)
    memories = Memories(database, most=10_000)

    assert memories.forget(before=2_400.0) == 2_400
    assert memories.forget(before=2_400.0) == 0
    found = memories.recall(HACKER, "s", 1)
    assert (found.count, found.older[0].turn) == (100, 2_400)


def test_stores_at_once_are_all_kept_up_to_the_most_that_there_may_be(database: Database) -> None:
    memories = Memories(database, most=60)
    refused: list[int] = []

    def keep(first: int) -> None:
        for turn in range(first, first + 20):
            try:
                memories.keep(HACKER, "s", turn, f"m{turn}")
            except MemoryFull:
                refused.append(turn)

    threads = [threading.Thread(target=keep, args=(n * 20,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert (memories.recall(HACKER, "s", 1).count, len(refused)) == (60, 20)


def test_a_hundred_sessions_at_once_are_each_whole(database: Database) -> None:
    memories = Memories(database, most=1_000)

    def session(number: int) -> list[int]:
        owner = Owner("https://issuer", f"agent-{number % 10}")
        return [memories.keep(owner, f"s{number}", turn, f"m{turn}") for turn in range(3)]

    with ThreadPoolExecutor(100) as pool:
        counts = list(pool.map(session, range(100)))

    assert counts == [[1, 2, 3]] * 100
