"""Finding a real server on this machine: `KUBEBUILDER_ASSETS`, then `PATH`, then our own cache.

Only looks, never builds; so tests may call it. What is found but not taken (too old, damaged) is said through
`note`. Standard library only.
"""

import functools
import hashlib
import mmap
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from realparts.parts import PARTS, Part

Note = Callable[[str], None]


REMEDY = "`make build-tools` builds it"


class MissingPartError(RuntimeError):
    """A real server is not on this machine; the message names the remedy."""


class UnmarkedTestError(AssertionError):
    """A test of `make test` asked for something that `make test` does not install."""


def refuse_in_quick_suite(what: object) -> None:
    """Raise UnmarkedTestError in `make test`, also where the machine happens to have what is asked for."""
    if os.environ.get("TOOLCRIB_SUITE") == "quick":
        raise UnmarkedTestError(
            f"This test asks for something that `make test` does not install: {what}. Mark it `real`."
        )


@dataclass(frozen=True)
class Found:
    """A program that will do: where it is, its version ("unknown" if it has none), and who supplied it."""

    part: Part
    path: Path
    version: str
    source: str

    def __str__(self) -> str:
        return f"{self.part.name} {self.version} from {self.source}: {self.path}"


def find(part: Part, environ: Mapping[str, str], note: Note = lambda text: None) -> Found | None:
    """The first program that will do, or None. `environ` is the environment to look in."""
    for source, path in _outside(part, environ):
        version = version_of(part, path)
        if version is None:
            note(f"{part.name} from {source} is not used: it does not tell its version ({path})")
        elif _pair(version) < part.minimum:
            oldest = ".".join(map(str, part.minimum))
            note(f"{part.name} {version} from {source} is not used: older than {oldest} ({path})")
        else:
            return Found(part, path, version, source)
    return cached(part, environ, note)


@functools.cache
def path_of(name: str) -> Path:
    """The program of a part, by the environment of this process; looked for once, since checksums take time.

    Raises MissingPartError.
    """
    refuse_in_quick_suite(name)
    found = find(PARTS[name], os.environ)
    if found is None:
        raise MissingPartError(f"{name} {PARTS[name].version} is not on this machine: {REMEDY}")
    return found.path


def cached(part: Part, environ: Mapping[str, str], note: Note = lambda text: None) -> Found | None:
    """The program that we built earlier, if it is there and its checksum is right."""
    path = cache_path(part, environ)
    if not path.is_file():
        return None
    if not checksum_holds(path):
        note(f"{part.name} {part.version} in the cache is not used: its checksum is wrong ({path})")
        return None
    return Found(part, path, part.version, "the cache")


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Where built programs are kept, a folder `name-version` each."""
    base = environ.get("XDG_CACHE_HOME", "")
    # The XDG specification: a relative path is to be ignored.
    root = Path(base) if base.startswith("/") else Path(environ.get("HOME") or Path.home()) / ".cache"
    return root / "toolcrib" / "bin"


def cache_path(part: Part, environ: Mapping[str, str]) -> Path:
    """Where the cache has, or will have, this program."""
    return cache_folder(environ) / f"{part.name}-{part.version}" / part.binaries[0]


def write_checksum(path: Path) -> None:
    """Put `<file>.sha256` beside a file, in the format of `sha256sum`."""
    _checksum_file(path).write_text(f"{_sha256(path)}  {path.name}\n")


def checksum_holds(path: Path) -> bool:
    """Whether the file beside it names its checksum; a missing one does not."""
    try:
        return _checksum_file(path).read_text().split()[:1] == [_sha256(path)]
    except OSError:
        return False


def version_of(part: Part, path: Path) -> str | None:
    """The version that a program states, like "1.37.0"; None if it cannot be run or read."""
    try:
        if not part.version_args:
            return _built_in_version(part, path) or "unknown"
        run = subprocess.run(
            [path, *part.version_args], capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    stated = re.search(r"\d+\.\d+(\.\d+)?", run.stdout)
    return stated[0] if run.returncode == 0 and stated else None


def _outside(part: Part, environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    for source in ("KUBEBUILDER_ASSETS", "PATH"):
        for binary in part.binaries:
            found = shutil.which(binary, path=environ.get(source, ""))
            if found:
                yield source, Path(found).absolute()
                break


def _built_in_version(part: Part, path: Path) -> str | None:
    # Go embeds the module list as text: "mod|dep<TAB>module<TAB>version<TAB>checksum".
    pattern = re.compile(rb"\t" + re.escape(part.requires.encode()) + rb"\tv(\d+\.\d+\.\d+)")
    with path.open("rb") as file:
        if path.stat().st_size == 0:
            return None
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            found = pattern.search(content)
            return found[1].decode() if found else None


def _pair(version: str) -> tuple[int, ...]:
    # "unknown" is taken: whoever put it on PATH knows what it is.
    return tuple(int(number) for number in version.split(".")[:2]) if version[0].isdigit() else (999,)


def _checksum_file(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
