"""A machine on which nothing is installed yet: a small Debian of its own, on this machine's network.

    with FreshMachine() as machine:
        machine.run("make", "check", timeout=600)

The root file system is made once by debootstrap and kept in the user's cache; each machine gets a fresh writable view
of it (overlayfs, else a copy). Programs inside see their own mounts, processes and host name, a clean
environment, a clone of HEAD in /srv, the built servers read-only, and no Go. This machine lends its certificates and
the settings of its package clients; no address and no setting stays in the kept root.

All ends with the process that made it, even by `kill -9`: the kernel ends the namespaces, the next machine removes
the folder that was left. Needs root; standard library only.
"""

import contextlib
import fcntl
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from realparts import able, baseimage, debian, lookup, processes
from realparts.parts import PARTS, SUITE

ROOT = Path(__file__).resolve().parents[3]
CLONE = "/srv/toolcrib"
PACKAGES = ("python3-venv", "make", "ca-certificates")
"""What the base holds beyond Debian's smallest system."""
REVISION = "1"
"""Grows when the same packages shall give another base."""
NAMESPACES = ("--mount", "--pid", "--uts", "--ipc")

# Of these variables the package clients take their index, proxies and certificates. Caches stay outside.
_CLIENTS = re.compile(
    r"(PIP|UV)_(?!\w*CACHE)\w+|SSL_CERT_(FILE|DIR)|(REQUESTS|CURL)_CA_BUNDLE|(https?|all|no)_proxy",
    re.IGNORECASE,
)
# How apt-get reaches its mirror; no hooks, which call programs of the distribution outside.
_APT_NETWORK = re.compile(r"Acquire::(https?|ftp|Retries|ForceIPv[46]|Check-[\w-]+)\b")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
_HOME = "/root"
_SERVERS = "/opt/servers"


class FreshMachineError(RuntimeError):
    """The machine could not be made, or a program did not end in time; the message says which and why."""


@dataclass(frozen=True)
class Done:
    """A program that ended: its status (128 + n where signal n ended it), both output streams, seconds."""

    status: int
    output: str
    seconds: float


def lacking() -> list[str]:
    """Why there can be no fresh machine here, each with its remedy; empty if nothing is in the way."""
    found = list(able.lacking_rights("make fresh-machine-test", *NAMESPACES))
    if debian.missing("debootstrap") and not shutil.which("apt-get"):
        found.append("debootstrap is not here, and there is no apt-get to install it with")
    if not shutil.which("git"):
        found.append("git is not here: the machine gets a clone of this repository")
    return found


def cache_folder() -> Path:
    """Where the base and the folders of running machines are."""
    return lookup.cache_folder(os.environ).parent / "fresh"


class FreshMachine:
    """One machine; a context manager. What a program writes is there for the next one, its processes are not.

    `overlay=False` copies the base instead of laying a writable layer over it.
    `below` is a machine whose state this one starts from; it must not run programs meanwhile.

    Raises:
        FreshMachineError: a server is not built, or git made no clone.
        baseimage.BaseImageError: there is no base and debootstrap failed.
    """

    def __init__(self, below: "FreshMachine | None" = None, *, overlay: bool | None = None) -> None:
        self._below = below
        self._overlay = overlay
        self._ended = contextlib.ExitStack()
        self._layers = ""
        self._lent: dict[str, Any] = {}
        self.folder = Path()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            base = make_base()
            self.folder = stack.enter_context(_run_folder())
            if self._overlay is None:
                self._overlay = self._below._overlay if self._below else _overlay_works(self.folder)
            if self._overlay:
                for name in ("upper", "work", "root"):
                    (self.folder / name).mkdir()
                upper = [self._below.folder / "upper"] if self._below else []
                lower = ":".join(map(str, [*upper, base]))
                self._layers = f"lowerdir={lower},upperdir={self.folder}/upper,workdir={self.folder}/work"
            else:
                source = self._below.folder / "root" if self._below else base
                _quiet("cp", "-a", "--reflink=auto", str(source), str(self.folder / "root"))
            if self._below:
                self._lent = self._below._lent
            else:
                _clone(self.folder / "clone")
                self._lent = _lent(base)
                self._lent["mounts"].append([str(self.folder / "clone"), CLONE, False])
            self._ended = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.close()

    @property
    def layers(self) -> bool:
        """Whether it is a layer over the base, not a copy."""
        return bool(self._layers)

    def start(self, *argv: str) -> processes.Child:
        """Start a program in the clone's folder; its log takes its output. Who starts it stops it."""
        number = len(list(self.folder.glob("*.plan")))
        plan = self.folder / f"{number}.plan"
        plan.write_text(
            json.dumps(
                self._lent
                | {"root": str(self.folder / "root"), "layers": self._layers, "argv": argv, "cwd": CLONE}
            )
        )
        jail = Path(__file__).with_name("freshjail.py")
        unshare = ("unshare", *NAMESPACES, "--fork", "--kill-child", "--")
        command = (*unshare, sys.executable, "-I", "-S", jail, plan)
        child = processes.Child(
            argv[0], command, log=plan.with_suffix(".log"), env={"PATH": os.environ["PATH"]}
        )
        return child.start()

    def run(self, *argv: str, timeout: float) -> Done:
        """Run a program in the clone's folder until it ends.

        Raises:
            FreshMachineError: it did not end within `timeout` seconds; the message ends with what it said.
        """
        began = time.monotonic()
        child = self.start(*argv)
        try:
            status = child.wait(timeout)
        except subprocess.TimeoutExpired:
            message = f"{' '.join(argv)} did not end within {timeout:g} s:\n{child.tail(100)}"
            raise FreshMachineError(message) from None
        finally:
            child.kill()
        return Done(status, child.log.read_text(errors="replace"), time.monotonic() - began)


def make_base() -> Path:
    """The root file system, made by debootstrap where it is not kept yet. Raises baseimage.BaseImageError."""
    target = cache_folder() / f"base-{baseimage.SUITE}-{REVISION}"
    with _locked():
        for unfinished in cache_folder().glob(".making-*"):
            _remove(unfinished)
        if not target.is_dir():
            debian.install("debootstrap")
            folder = Path(tempfile.mkdtemp(prefix=".making-", dir=cache_folder()))
            made = folder / "root"
            try:
                baseimage.debootstrap(made, PACKAGES)
                for settings in ("etc/apt/sources.list", "etc/resolv.conf", "etc/hostname"):
                    (made / settings).write_text("")
                # A new machine knows no package before its first `apt-get update`.
                for lists in ("var/lib/apt/lists", "var/cache/apt/archives"):
                    _quiet("find", str(made / lists), "-type", "f", "-delete")
                made.rename(target)
            finally:
                _remove(folder)
    return target


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    cache_folder().mkdir(parents=True, exist_ok=True)
    with (cache_folder() / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _run_folder() -> Iterator[Path]:
    """A folder for one machine, locked while its maker lives; those of makers that were killed are removed."""
    with _locked():
        for other in cache_folder().glob("run-*"):
            with contextlib.suppress(BlockingIOError), (other / ".lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(other)
        folder = Path(tempfile.mkdtemp(prefix="run-", dir=cache_folder()))
        held: TextIO = (folder / ".lock").open("a")
        fcntl.flock(held, fcntl.LOCK_EX)
    try:
        yield folder
    finally:
        with _locked():
            _remove(folder)
        held.close()


def _remove(folder: Path) -> None:
    # Never into what is mounted below, should a mount ever be there.
    _quiet("rm", "-rf", "--one-file-system", str(folder))


def _overlay_works(folder: Path) -> bool:
    for name in ("l", "u", "w", "m"):
        (folder / "try" / name).mkdir(parents=True)
    command = 'cd "$0" && mount -t overlay -o lowerdir=l,upperdir=u,workdir=w overlay m'
    tried = ["unshare", "--mount", "sh", "-c", command, str(folder / "try")]
    return subprocess.run(tried, capture_output=True, check=False).returncode == 0


def _clone(target: Path) -> None:
    """A clone of HEAD as anybody gets it, whoever owns this one."""
    with tempfile.NamedTemporaryFile("w", prefix="toolcrib-gitconfig-") as settings:
        settings.write("[safe]\n\tdirectory = *\n[advice]\n\tdetachedHead = false\n")
        settings.flush()
        environment = processes.clean_environment(
            {"GIT_CONFIG_GLOBAL": settings.name, "GIT_CONFIG_NOSYSTEM": "1"}
        )
        head = _quiet("git", "-C", str(ROOT), "rev-parse", "HEAD", environment=environment).strip()
        source = f"file://{ROOT}"
        _quiet("git", "clone", "-q", "--no-checkout", source, str(target), environment=environment)
        _quiet("git", "-C", str(target), "checkout", "-q", head, environment=environment)


def _quiet(*argv: str, environment: Mapping[str, str] | None = None) -> str:
    """Run a program and return what it said. Raises FreshMachineError with what it said last."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        raise FreshMachineError(f"{' '.join(argv[:2])} …: {done.stderr.strip()[-1000:]}")
    return done.stdout


# ---- what this machine lends -------------------------------------------------------------------------


def _lent(base: Path) -> dict[str, Any]:
    """Settings, certificates and servers, as parts of the plan of freshjail."""
    variables = {name: value for name, value in os.environ.items() if _CLIENTS.fullmatch(name)}
    texts = {"/etc/apt/sources.list": f"deb {baseimage.mirror()} {baseimage.SUITE} main\n"}
    if shutil.which("apt-config"):
        lines = _quiet("apt-config", "dump", "Acquire").splitlines(keepends=True)
        texts["/etc/apt/apt.conf.d/99outside"] = "".join(filter(_APT_NETWORK.match, lines))
    home = Path.home()
    files = {
        path: path
        for path in map(Path, ("/etc/hosts", "/etc/resolv.conf", "/etc/pip.conf", "/etc/uv/uv.toml"))
    }
    files |= {
        home / name: Path(_HOME, name)
        for name in (".config/pip/pip.conf", ".pip/pip.conf", ".config/uv/uv.toml")
    }
    authorities = ssl.get_default_verify_paths().openssl_cafile
    files |= {Path(authorities): Path(_BUNDLE), Path(_BUNDLE): Path(_BUNDLE)}
    files |= {path: path for path in Path("/usr/local/share/ca-certificates").glob("**/*.crt")}
    files = {source: target for source, target in files.items() if source.is_file()}
    spoken = [*variables.values(), *texts.values()]
    spoken += [path.read_text() for path in files if path.suffix in (".conf", ".toml")]
    mounts: list[list[Any]] = []
    for path in _named(spoken):
        if path.is_file():
            files.setdefault(path, path)
        elif path.is_dir() and not (base / str(path).lstrip("/")).exists():
            mounts.append([str(path), str(path), True])
    servers, settings = _servers()
    own = {"PATH": _PATH, "HOME": _HOME, "LANG": "C.UTF-8", "TERM": "dumb"}
    return {
        "texts": texts,
        "files": [[str(source), str(target)] for source, target in files.items()],
        "mounts": mounts + servers,
        "environment": variables | own | settings,
    }


def _named(texts: list[str]) -> list[Path]:
    """The files and folders of this machine that settings name."""
    words = [
        word for text in texts for word in re.findall(r"(?<![\w:/.*])/[\w./+-]+", text.replace("file://", ""))
    ]
    return [Path(word) for word in dict.fromkeys(words) if Path(word).exists()]


def _servers() -> tuple[list[list[Any]], dict[str, str]]:
    """Mounts that show the built servers where they are looked for, and the variable that names the others."""
    mounts: list[list[Any]] = []
    settings = {}
    for name in SUITE:
        found = lookup.find(PARTS[name], os.environ)
        if found is None:
            raise FreshMachineError(f"{name} {PARTS[name].version} is not on this machine: {lookup.REMEDY}")
        if found.path == lookup.cache_path(found.part, os.environ):
            kept = lookup.cache_path(found.part, {"HOME": _HOME}).parent
            mounts.append([str(found.path.parent), str(kept), True])
        else:
            mounts.append([str(found.path), f"{_SERVERS}/{found.part.binaries[0]}", True])
            settings = {"KUBEBUILDER_ASSETS": _SERVERS}
    return mounts, settings
