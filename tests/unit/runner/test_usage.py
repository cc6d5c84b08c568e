"""What an agent has used."""

import json
import threading
from pathlib import Path

import pytest

from toolcrib_runner.usage import Usage


def test_of_equally_used_tools_the_first_by_name_is_the_most_used() -> None:
    usage = Usage("a")
    for tool in ("b", "a", "b", "a"):
        usage.count(tool)
    assert usage.stats(0).most_used_tool == "a"


def test_counts_in_a_folder_outlive_the_process_and_agents_do_not_mix(tmp_path: Path) -> None:
    Usage("team/a", tmp_path).count("x")
    Usage("team/a", tmp_path).count("x")
    Usage("b", tmp_path).count("y")

    assert Usage("team/a", tmp_path).stats(0).usage_by_tool == {"x": 2}
    assert Usage("b", tmp_path).stats(0).usage_by_tool == {"y": 1}
    assert Usage("team/a").stats(0).usage_by_tool == {}


def test_calls_of_many_threads_are_all_kept(tmp_path: Path) -> None:
    usage = Usage("a", tmp_path)
    threads = [threading.Thread(target=usage.count, args=(f"t{n % 3}",)) for n in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert Usage("a", tmp_path).stats(0).usage_by_tool == {"t0": 10, "t1": 10, "t2": 10}


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"calls": [1]}', b'{"calls": {"x": "1"}}', b'{"calls": {"x": -1}}', b"\xff"],
)
def test_a_file_that_cannot_be_read_is_kept_aside_and_counting_starts_from_zero(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "a.usage.json"
    file.write_bytes(content)

    usage = Usage("a", tmp_path)
    usage.count("x")

    assert usage.stats(0).usage_by_tool == {"x": 1}
    assert file.with_suffix(".broken").read_bytes() == content
    assert json.loads(file.read_text()) == {"calls": {"x": 1}}
    assert "starts from zero" in caplog.text


def test_a_call_is_counted_though_it_cannot_be_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    usage = Usage("a", tmp_path / "state")
    (tmp_path / "state").rmdir()

    usage.count("x")

    assert usage.stats(0).total_tool_calls == 1
    assert "cannot be saved" in caplog.text
