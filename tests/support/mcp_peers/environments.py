"""The environments of MCP clients that tests run: two of Python, one of Node, each from a lock of its own.

    python tests/support/mcp_peers/environments.py     make what is missing; 0 if all are there, 1 with a message else

Without npm it is 0 too, with the message, unless TOOLCRIB_REQUIRE_REAL=1: the clients' tests are skipped then.

They are kept in ~/.cache/toolcrib/peers (XDG_CACHE_HOME is honoured), each in a folder named by its lock's hash, so a
new lock makes a new one beside it. An interrupted installation is made again. Tests only look (`python`, `node`); nothing is installed then.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path

if __package__ in (None, ""):
    # Run as a file: Python put this folder first.
    sys.path.remove(str(Path(__file__).resolve().parent))
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from realparts import lookup

LOCKS = Path(__file__).parent
PYTHON = ("current", "earlier")
"""`current` speaks both eras (mcp 2, FastMCP); `earlier` the handshake era alone (mcp 1, openai-agents, LangChain)."""
NODE_MINIMUM = 22
SDK_EXAMPLE = "examples/servers/everything-server"
"""What is unpacked of the Python SDK's source distribution."""

_NPM_FILES = ("package.json", "package-lock.json", ".npmrc")
_DONE = ".installed"
_REMEDY = "`make mcp-peers` installs them"
_NPM_MISSING = (
    "The MCP clients of Node take npm, which is not on PATH. On Debian and Ubuntu: apt-get install npm. "
    "Any npm from 9 on will do: the locked packages bring a Node of their own."
)


hidden = False
"""The test suite sets this for tests without the mark `peers`: `make test` installs no clients, even if some are here."""


class PeersMissingError(RuntimeError):
    """An environment is not on this machine or cannot be made; the message says what to do."""


class NpmMissingError(PeersMissingError):
    """There is no npm to make Node's environment with."""


def required() -> bool:
    """Whether this run must not do without the clients."""
    return os.environ.get("TOOLCRIB_REQUIRE_REAL", "") not in ("", "0")


def python(name: str) -> Path:
    """The interpreter of one of the environments in `PYTHON`. Raises PeersMissingError."""
    return _there(_locked_folder(_lock(name))) / "bin" / "python"


def node_modules() -> Path:
    """The folder of Node's packages. Raises PeersMissingError."""
    return _there(_npm_folder()) / "node_modules"


def node() -> Path:
    """The Node that runs them: the locked one, else PATH's where there is none for this machine. Raises PeersMissingError."""
    for found in sorted(node_modules().glob("node-*/bin/node")):
        return found
    on_path = shutil.which("node")
    stated = on_path and subprocess.run([on_path, "--version"], capture_output=True, text=True, check=False)
    major = re.match(r"v(\d+)\.", stated.stdout) if stated else None
    if on_path and major and int(major[1]) >= NODE_MINIMUM:
        return Path(on_path)
    raise PeersMissingError(
        f"npm has no Node for this machine's processor among the locked packages; put Node {NODE_MINIMUM} or newer on PATH."
    )


def provide() -> None:
    """Make what is missing, saying so. Raises PeersMissingError, or at once NpmMissingError."""
    npm = shutil.which("npm")
    if npm is None and not (_npm_folder() / _DONE).is_file():
        raise NpmMissingError(_NPM_MISSING)
    for name in PYTHON:
        provide_locked(_lock(name))
    folder = _npm_folder()
    with _making(folder, "Node and its packages") as wanted:
        if wanted:
            assert npm is not None
            folder.mkdir()
            for name in _NPM_FILES:
                shutil.copy(LOCKS / "npm" / name, folder)
            # Packages that ask for a newer Node than npm's own run on the locked one.
            _run([npm, "ci", "--loglevel", "error"], folder)
    node()
    _provide_source()


def provide_locked(lock: Path) -> Path:
    """The interpreter of an environment with exactly the packages of this lock, made where it is missing. Raises PeersMissingError."""
    folder = _locked_folder(lock)
    packages = sum(line[:1].isalnum() for line in lock.read_text().splitlines())
    with _making(folder, f"{packages} Python packages") as wanted:
        if wanted:
            _run([sys.executable, "-m", "venv", str(folder)])
            pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install"]
            # The lock is whole; pip's own resolver refuses extras of a locked package (`pydantic[email]`).
            _run([*pip, "--quiet", "--no-deps", "--require-hashes", "-r", str(lock)])
    return folder / "bin" / "python"


def sdk_source() -> Path:
    """The folder with the Python SDK's own examples, which no wheel has. Raises PeersMissingError."""
    return _there(_source_folder())


def _provide_source() -> None:
    """Unpack what is wanted of PyPI's source distribution, by the hash that stands in the lock."""
    folder, lock = _source_folder(), _lock("current")
    with _making(folder, "the Python SDK's everything-server") as wanted:
        if not wanted:
            return
        folder.mkdir()
        # `mcp==…` and the lines of its hashes
        found = re.search(r"^mcp==(?:.*\\\n)+.*\n", lock.read_text(), re.MULTILINE)
        assert found
        (folder / "wanted.txt").write_text(found[0])
        pip = [str(python("current")), "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
        words = ["--no-deps", "--no-binary", "mcp", "--require-hashes", "-r", "wanted.txt", "-d", str(folder)]
        _run([*pip, *words], folder)
        (archive,) = folder.glob("mcp-*.tar.gz")
        with tarfile.open(archive) as tar:
            members = [each for each in tar if SDK_EXAMPLE in each.name.split("/", 1)[-1]]
            # Debian's Python 3.11.2 has none; the archive is known by its hash
            tar.extraction_filter = getattr(tarfile, "data_filter", None)
            tar.extractall(folder, members=members)
        archive.unlink()


def _source_folder() -> Path:
    return _folder("sdk", [_lock("current")], SDK_EXAMPLE)


def _lock(name: str) -> Path:
    return LOCKS / "python" / f"{name}.txt"


def _locked_folder(lock: Path) -> Path:
    return _folder(lock.stem, [lock], f"{sys.version_info[:2]} {sys.platform}")


def _npm_folder() -> Path:
    return _folder("npm", [LOCKS / "npm" / name for name in _NPM_FILES], sys.platform)


def _folder(name: str, files: Sequence[Path], machine: str) -> Path:
    digest = hashlib.sha256(machine.encode())
    for path in files:
        digest.update(path.read_bytes())
    return lookup.cache_folder(os.environ).parent / "peers" / f"{name}-{digest.hexdigest()[:16]}"


def _there(folder: Path) -> Path:
    if hidden:
        raise PeersMissingError(
            f"This test uses the MCP clients of `{folder.name}`: give it the mark `peers`."
        )
    if not (folder / _DONE).is_file():
        raise PeersMissingError(f"The MCP clients of `{folder.name}` are not on this machine: {_REMEDY}.")
    return folder


@contextlib.contextmanager
def _making(folder: Path, what: str) -> Iterator[bool]:
    """Whether the folder is to be made, under a lock; it is done once the block ends without an error."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Another run is installing; waiting for it.", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        if (folder / _DONE).is_file():
            yield False
            return
        print(f"→ Installing {what} into {folder} (about a minute, once)", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        yield True
        (folder / _DONE).touch()


def _run(command: Sequence[str], folder: Path | None = None) -> None:
    """Run a command, its output on the terminal. Raises PeersMissingError if it fails."""
    done = subprocess.run(command, cwd=folder, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        words = " ".join([Path(command[0]).name, *command[1:]])
        raise PeersMissingError(f"`{words}` failed with {done.returncode}; its output above says why.")


def main() -> int:
    """Make what is missing; the exit status."""
    # It is ignored from the start where a shell runs this in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        provide()
    except NpmMissingError as error:
        print(error, file=sys.stderr)
        return 1 if required() else 0
    except PeersMissingError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted; run it again.", file=sys.stderr)
        return 130
    print(f"MCP clients: all there, in {_npm_folder().parent}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
