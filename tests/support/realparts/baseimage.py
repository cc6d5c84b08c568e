"""The base image of tests: a small Debian with Python, made by debootstrap from this machine's own mirror.

No registry can be reached everywhere, and a base that is built here is known to the last file. Nothing of the
machine goes into it: its package sources are overwritten with Debian's public ones, and the machine's own
certificates stay outside (a build gets them as a secret).
"""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from realparts import processes

SUITE = "bookworm"
PACKAGES = ("python3", "python3-venv", "ca-certificates")
REVISION = "3"
"""Grows when the same packages shall give another image."""

_PUBLIC_SOURCES = """\
deb http://deb.debian.org/debian bookworm main
deb http://deb.debian.org/debian bookworm-updates main
deb http://security.debian.org/debian-security bookworm-security main
"""
# What only a person or a package manager would read.
_LEFT_OUT = (
    "var/cache/apt", "var/lib/apt/lists", "var/log", "var/cache/debconf", "var/cache/ldconfig",
    "usr/share/doc", "usr/share/man", "usr/share/info", "usr/share/locale", "usr/share/i18n", "debootstrap",
)  # fmt: skip


class BaseImageError(RuntimeError):
    """debootstrap did not make the tree; the message ends with what it said."""


def key() -> str:
    """Names the content: a new key is a new image."""
    return f"{SUITE}-{REVISION}"


def build(target: Path) -> None:
    """Write the root file system as a tar file. Needs root, debootstrap and Debian's mirror; about 45 s.

    Raises:
        BaseImageError: debootstrap failed.
    """
    folder = Path(tempfile.mkdtemp(prefix="toolcrib-base-"))
    root = folder / "rootfs"
    try:
        debootstrap(root, PACKAGES)
        _clean(root)
        partial = target.with_suffix(".partial")
        command = ["tar", "--numeric-owner", "--sort=name", "--one-file-system"]
        subprocess.run([*command, "-cf", str(partial), "-C", str(root), "."], check=True)
        partial.replace(target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def mirror(folder: Path = Path("/etc/apt")) -> str:
    """The first Debian mirror of this machine's apt configuration, else the public one."""
    for path in [*sorted((folder / "sources.list.d").glob("*.sources")), folder / "sources.list"]:
        text = path.read_text() if path.is_file() else ""
        for pattern in (r"^URIs:\s*(\S+/debian)/?\s*$", r"^deb\s+(?:\[.*?\]\s+)?(\S+/debian)/?\s"):
            found = re.search(pattern, text, re.MULTILINE)
            if found:
                return found[1]
    return "http://deb.debian.org/debian"


def debootstrap(root: Path, packages: Sequence[str]) -> None:
    """Write the smallest Debian with these packages into `root`, from this machine's mirror. Needs root.

    Raises:
        BaseImageError: debootstrap failed; the message ends with what it said.
    """
    # Namespaces of its own: what debootstrap mounts and starts goes with them, however it ends.
    names = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    command = ["unshare", *names, "debootstrap", "--variant=minbase", f"--include={','.join(packages)}"]
    with tempfile.TemporaryDirectory(prefix="toolcrib-debootstrap-") as folder:
        child = processes.Child("debootstrap", [*command, SUITE, root, mirror()], log=Path(folder) / "log")
        with child:
            try:
                status = child.wait(900)
            except subprocess.TimeoutExpired:
                raise BaseImageError(f"debootstrap did not end within 900 s: {child.tail()}") from None
        if status != 0:
            log = root / "debootstrap" / "debootstrap.log"
            raise BaseImageError(f"debootstrap: {log.read_text()[-1500:] if log.exists() else child.tail()}")


def _clean(root: Path) -> None:
    for name in _LEFT_OUT:
        path = root / name
        copyright_files = list(path.glob("*/copyright")) if name == "usr/share/doc" else []
        kept = {file.relative_to(path): file.read_bytes() for file in copyright_files if file.is_file()}
        shutil.rmtree(path, ignore_errors=True)
        # Licences go with what they license.
        for relative, content in kept.items():
            (path / relative).parent.mkdir(parents=True, exist_ok=True)
            (path / relative).write_bytes(content)
    for name in ("var/lib/apt/lists/partial", "var/cache/apt/archives/partial", "var/log"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "etc/apt/sources.list").write_text(_PUBLIC_SOURCES)
    for name in ("etc/hostname", "etc/resolv.conf", "etc/machine-id"):
        (root / name).write_text("")
