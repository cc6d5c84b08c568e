"""The namespaces of a fresh machine, from inside: mounts, a new root by pivot_root, then one program as on a machine.

    unshare --mount --pid --uts --ipc --fork --kill-child -- python freshjail.py PLAN

This is process 1 there. It reaps every orphan and ends with the program, and the kernel ends what is left with
it; the mounts go with the last process. Root's own `pivot_root` and not `chroot`: below a chroot the kernel
refuses new namespaces, which our tests make. Standard library only, and Python's own, since the new root has none
of our packages.

The plan is a JSON file:

| field | what |
|---|---|
| root | an empty folder that becomes `/`; or, without `layers`, the tree itself |
| layers | options of an overlayfs (`lowerdir=…,upperdir=…,workdir=…`), or empty |
| texts | path inside → content |
| files | pairs: a file outside, its path inside, where it is copied to |
| mounts | triples: a file or folder outside, its path inside, whether it is read-only |
| argv, cwd, environment | the program, its folder, and all of its environment |
"""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_OLD_ROOT = ".outside"
_MNT_DETACH = 2  # <sys/mount.h>


def main(plan: dict[str, Any]) -> int:
    """Become the plan's machine and run its program; the exit status, 128 + n where signal n ended it."""
    # Whoever started us may ignore signals; the program would inherit that.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    root = Path(plan["root"])
    if plan["layers"]:
        _mount("-t", "overlay", "-o", plan["layers"], "overlay", str(root))
    else:
        _mount("--bind", str(root), str(root))
    _furnish(root, plan)
    _devices(root / "dev")
    _mount("-t", "proc", "proc", str(root / "proc"))
    _mount("--rbind", "/sys", str(root / "sys"))
    _pivot(root)
    child = subprocess.Popen(
        plan["argv"],
        cwd=plan["cwd"],
        env=plan["environment"],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    while True:
        pid, status = os.wait()
        if pid == child.pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _furnish(root: Path, plan: dict[str, Any]) -> None:
    """What the machine outside lends: settings and certificates as copies, folders as mounts."""
    for name, text in plan["texts"].items():
        _place(root, name).write_text(text)
    for source, name in plan["files"]:
        target = _place(root, name)
        target.unlink(missing_ok=True)  # a link of the base, which would lead out of the root
        shutil.copyfile(source, target)
    for source, name, read_only in plan["mounts"]:
        target = _place(root, name)
        if Path(source).is_dir():
            target.mkdir(exist_ok=True)
        else:
            target.touch()
        _mount("-o", "bind,ro" if read_only else "bind", source, str(target))


def _place(root: Path, name: str) -> Path:
    target = root / name.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def _devices(folder: Path) -> None:
    _mount("-t", "tmpfs", "-o", "mode=0755", "dev", str(folder))
    for name in _DEVICES:
        (folder / name).touch()
        _mount("--bind", f"/dev/{name}", str(folder / name))
    for name, kind, options in (
        ("pts", "devpts", "newinstance,ptmxmode=0666,mode=0620"),
        ("shm", "tmpfs", "mode=1777"),
    ):
        (folder / name).mkdir()
        _mount("-t", kind, "-o", options, kind, str(folder / name))
    links = {"ptmx": "pts/ptmx", "fd": "/proc/self/fd"} | {
        name: f"/proc/self/fd/{number}" for number, name in enumerate(("stdin", "stdout", "stderr"))
    }
    for name, aim in links.items():
        (folder / name).symlink_to(aim)


def _pivot(root: Path) -> None:
    """Make `root` the root of this namespace, and let go of everything outside it."""
    library = ctypes.CDLL(None, use_errno=True)
    old = root / _OLD_ROOT
    old.mkdir(exist_ok=True)
    os.chdir(root)
    subprocess.run(["pivot_root", ".", _OLD_ROOT], check=True)
    os.chdir("/")
    if library.umount2(f"/{_OLD_ROOT}".encode(), _MNT_DETACH) != 0:
        raise OSError(ctypes.get_errno(), "the old root cannot be unmounted")
    Path("/", _OLD_ROOT).rmdir()


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


if __name__ == "__main__":
    sys.exit(main(json.loads(Path(sys.argv[1]).read_text())))
