"""Servers taken from Debian's packages without installing them: unpacked into the cache, with their libraries.

Standard library only: the build script imports this.
"""

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from realparts import lookup


class UnpackingError(RuntimeError):
    """The package could not be fetched; the message says why, and no more."""


def find(name: str, program: str) -> Path | None:
    """The program that an earlier `fetch` unpacked; `program` is a pattern of paths within the package."""
    for folder in sorted(lookup.cache_folder(os.environ).glob(f"{name}-[0-9]*"), reverse=True):
        for found in folder.glob(program):
            if lookup.checksum_holds(found):
                return found
    return None


def fetch(name: str, package: str, program: str) -> Path:
    """Unpack a package, with what it needs that is not installed, into the cache as NAME-VERSION.

    Raises:
        UnpackingError: there is no apt-get, no package or no network.
    """
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        raise UnpackingError("there is no apt-get to fetch it")
    cache = lookup.cache_folder(os.environ)
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=cache) as scratch:
        folder, new = Path(scratch), Path(scratch) / "new"
        wanted = _missing_packages(package)
        quiet("apt-get", "download", "-qq", *wanted, cwd=folder)
        for file in folder.glob("*.deb"):
            quiet("dpkg", "-x", str(file), str(new))
        (main,) = folder.glob(f"{package}_*.deb")
        found = re.search(r"_(?:\d+(?:%3a|:))?(\d+(?:\.\d+)*)", main.name)
        for each in new.glob(program):
            lookup.write_checksum(each)
        target = cache / f"{name}-{found[1] if found else '0'}"
        if target.exists():
            target.rename(folder / "old")
        with contextlib.suppress(OSError):  # another run was first
            new.rename(target)
    made = find(name, program)
    if made is None:
        raise UnpackingError(f"{package} holds no {program}")
    return made


def libraries(program: Path) -> dict[str, str]:
    """What an unpacked program's environment needs: where its libraries are; nothing for one that is installed."""
    cache = lookup.cache_folder(os.environ)
    if cache not in program.parents:
        return {}
    root = cache / program.relative_to(cache).parts[0]
    return {"LD_LIBRARY_PATH": ":".join(str(found) for found in (root / "usr" / "lib").glob("*-linux-*"))}


def _missing_packages(package: str) -> list[str]:
    """The package and what it needs that is not installed, as apt works it out."""
    command = ("apt-get", "install", "-s", "-qq", "--no-install-recommends", package)
    if run(*command).returncode != 0:
        quiet("apt-get", "update", "-qq")  # on a fresh machine the lists are empty
    return re.findall(r"^Inst (\S+)", quiet(*command), re.MULTILINE)


def quiet(*command: str, cwd: Path | None = None) -> str:
    """What a command prints. Raises UnpackingError with its last line where it fails."""
    done = run(*command, cwd=cwd)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise UnpackingError(f"{command[0]} failed: {last}")
    return done.stdout


def run(*command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """What came of a command that asks nobody."""
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, stdin=subprocess.DEVNULL)
