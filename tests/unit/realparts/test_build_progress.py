"""While `make build-tools` builds it says what, how far, and how long it took last time."""

import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from pathlib import Path

import pytest

import stand_in_go
from realparts import cache, lookup, progress
from realparts.parts import PARTS, SUITE
from stand_in_go import GO, SCRIPT, leftovers, put, run

ETCD = PARTS["etcd"]
LONGEST = "kube-controller-manager"
# As many packages as the largest part has.
LARGE = GO.replace("printf 'one\\ntwo\\n'", "seq 1900").replace("echo one >&2", "seq -f k8s.io/kubernetes/pkg/controller/%g 1310 >&2")  # fmt: skip


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    environ = stand_in_go.environment(tmp_path) | {"GO_VERSION": "go1.26.8"}
    put(tmp_path / "path", "go", GO)
    stand_in_go.tools(tmp_path / "path")
    return environ


def times(environ: Mapping[str, str]) -> Path:
    folder = lookup.cache_folder(environ)
    folder.mkdir(parents=True, exist_ok=True)
    return folder / ".seconds.json"


def test_a_first_build_tells_how_long_it_takes_on_two_cores_and_a_second_how_long_the_first_took(
    environ: dict[str, str],
) -> None:
    first = run(environ, "etcd")
    took = cache.last_time(lookup.cache_folder(environ), "etcd")
    shutil.rmtree(lookup.cache_path(ETCD, environ).parent)
    second = run(environ, "etcd")

    about = f"about {round(ETCD.seconds / 60)} min on two cores"
    assert f"To build, once: etcd ({about})." in first.stdout
    assert re.search(
        rf"^etcd 3\.6\.16: building: 1 of at most 2 packages, 0:0\d, {about}$", first.stdout, re.MULTILINE
    )
    assert took is not None
    last = f"last time {progress.clock(took)}"
    assert f"To build, once: etcd ({last})." in second.stdout
    assert re.search(
        rf"^etcd 3\.6\.16: building: 1 of at most 2 packages, 0:0\d, {last}$", second.stdout, re.MULTILINE
    )


def test_several_parts_take_as_long_as_each_did_last_time_else_as_measured(tmp_path: Path) -> None:
    seconds = {name: PARTS[name].seconds for name in SUITE}
    nothing = progress.usual(tmp_path, seconds)
    cache.record_time(tmp_path, "etcd", 460.4)
    one = progress.usual(tmp_path, {"etcd": 100}), progress.usual(tmp_path, {"etcd": 100, "dex": 140})
    for name in SUITE:
        cache.record_time(tmp_path, name, 460)

    assert nothing == f"about {round(sum(seconds.values()) / 60)} min on two cores"
    assert one == ("last time 7:40", "about 10 min")
    assert progress.usual(tmp_path, seconds) == f"last time {progress.clock(460 * len(SUITE))}"


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '{"etcd": "7:40"}', '{"etcd": -1}', '{"etcd": NaN}', '{"etcd": true}', '{"etcd": 1e999}', "[" * 100_000, "\udcff"],
)  # fmt: skip
def test_damaged_times_count_as_none_and_are_replaced(environ: dict[str, str], content: str) -> None:
    times(environ).write_bytes(content.encode(errors="surrogateescape"))
    folder = lookup.cache_folder(environ)

    assert cache.last_time(folder, "etcd") is None
    cache.record_time(folder, "etcd", 460)
    assert cache.last_time(folder, "etcd") == 460


def test_a_build_with_damaged_times_is_whole_and_leaves_its_own(environ: dict[str, str]) -> None:
    times(environ).write_text("{")
    result = run(environ, "etcd")

    assert result.returncode == 0, result.stderr
    assert "on two cores" in result.stdout
    assert cache.last_time(lookup.cache_folder(environ), "etcd") in range(60)


def test_times_of_other_parts_stay(environ: dict[str, str]) -> None:
    times(environ).write_text('{"dex": 60}')

    assert run(environ, "etcd").returncode == 0
    assert cache.last_time(lookup.cache_folder(environ), "dex") == 60


def test_times_that_cannot_be_kept_fail_no_build(environ: dict[str, str]) -> None:
    times(environ).mkdir()

    assert run(environ, "etcd").returncode == 0


def test_a_failed_build_leaves_the_time_of_the_last_whole_one(environ: dict[str, str]) -> None:
    times(environ).write_text('{"etcd": 460}')

    assert "last time 7:40" in run({**environ, "GO_FAILS": "no space left"}, "etcd").stdout
    assert cache.last_time(lookup.cache_folder(environ), "etcd") == 460
    assert leftovers(environ) == [".seconds.json"]


@pytest.mark.parametrize(
    ("part", "seconds", "end"),
    [
        ("etcd", None, f"etcd: 1,310 of at most 1,900 packages, 0:0N, about {round(ETCD.seconds / 60)} min on two cores"),
        ("etcd", 100, "etcd 3.6.16: building: 1,310 of at most 1,900 packages, 0:0N, last time 1:40"),
        (LONGEST, None, f"{LONGEST}: 1,310 of at most 1,900 packages, 0:0N, about {round(PARTS[LONGEST].seconds / 60)} min"),
        (LONGEST, 100, f"{LONGEST}: 1,310 of at most 1,900 packages, 0:0N, last time 1:40"),
    ],
)  # fmt: skip
def test_on_a_terminal_of_80_columns_one_line_changes_and_fits(
    environ: dict[str, str], tmp_path: Path, part: str, seconds: int | None, end: str
) -> None:
    put(tmp_path / "path", "go", LARGE)
    (tmp_path / "path" / "seq").symlink_to(str(shutil.which("seq")))
    if seconds is not None:
        times(environ).write_text(f'{{"{part}": {seconds}}}')
    text = on_terminal(environ, part, columns=80)

    painted = re.findall(r"\r\x1b\[K([^\r\n]*)", text)
    assert max(map(len, painted)) < 80
    assert text.count("\r\x1b[K") == len(painted) >= 2
    assert re.sub(r"0:0\d", "0:0N", painted[-1], count=1) == end
    # Each of the two steps ends its line; the next begins on a line of its own.
    assert len(re.findall(r"\r\x1b\[K[^\r\n]*\r?\n", text)) == 2


def on_terminal(environ: Mapping[str, str], part: str, columns: int) -> str:
    """Output of `build.py` on a terminal of this width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environ = {name: value for name, value in environ.items() if name != "COLUMNS"}
    with subprocess.Popen(
        [sys.executable, SCRIPT, part], env=environ, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        text = b""
        try:
            while piece := os.read(ours, 4096):
                text += piece
        except OSError:  # Linux' end of a terminal
            pass
        assert process.wait(60) == 0, text
    os.close(ours)
    return text.decode()
