"""The namespaces that a test node lives in: network, mounts and processes of its own, on a veth link to the host.

    python nodejail.py keep PLAN   outside: makes the namespaces, the link and the cgroups; at its end none are left
    python nodejail.py init PLAN   inside, as process 1: starts the programs of the plan, and again when they end

The keeper ends when its standard input closes, on SIGTERM, or with `init`. What a node starts cannot outlive
`init`: the kernel ends a process namespace with its first process, and `init` ends with the keeper, even when
that is killed with -9 (then only empty cgroups stay, which the next keeper of that number removes).
Standard library only.
"""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CGROUPS = Path("/sys/fs/cgroup")
KEEP_FOLDER = b"keep\n"
RESTART_AFTER = 0.3  # s between the end of a program and its next start

Plan = dict[str, Any]


# ---- outside -----------------------------------------------------------------------------------------


def keep(plan: Plan) -> int:
    """Stand the node up, wait until it has to end, remove everything; the exit status."""
    # Our package, not the standard library: `init` must not need it.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from realparts import processes

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: os.write(wake, b"x"))
    woken, wake = os.pipe()
    remove_cgroups(plan["cgroup"])
    make_cgroups(plan["cgroup"])
    argv = [
        "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--",
        sys.executable, "-I", "-S", str(Path(__file__).resolve()), "init", str(Path(plan["folder"]) / "plan.json"),
    ]  # fmt: skip
    outer = processes.spawn(argv, stdin=subprocess.PIPE)
    forget = False
    try:
        inner = _child(outer)
        Path(plan["folder"], "init.pid").write_text(str(inner))
        _link(plan, inner)
        assert outer.stdin
        outer.stdin.write(b"go\n")
        outer.stdin.flush()
        forget = _wait(outer, woken, watch_input=not plan["detached"]) and bool(plan["temporary"])
    finally:
        processes.end(outer, grace=0)
        subprocess.run(["ip", "link", "del", plan["link"]], capture_output=True, check=False)
        remove_cgroups(plan["cgroup"])
        if forget:
            subprocess.run(["rm", "-rf", "--one-file-system", plan["folder"]], check=False)
    return 0


def _wait(outer: "subprocess.Popen[bytes]", woken: int, *, watch_input: bool) -> bool:
    """Wait for the end; true if whoever held our standard input has gone without a word."""
    while outer.poll() is None:
        sources = [woken, 0] if watch_input else [woken]
        ready, _, _ = select.select(sources, [], [], 0.5)
        if woken in ready:
            return False
        if 0 in ready:
            return os.read(0, 64) != KEEP_FOLDER
    print(f"the node's first process ended with {outer.returncode}", file=sys.stderr)
    return False


def _child(outer: "subprocess.Popen[bytes]") -> int:
    """The process id, seen from here, of the first process inside."""
    deadline = time.monotonic() + 60
    children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
    while time.monotonic() < deadline and outer.poll() is None:
        found = children.read_text().split()
        # Our own launcher execs; only unshare, once it is that, has a child.
        if found:
            return int(found[0])
        time.sleep(0.01)
    raise RuntimeError("unshare made no namespaces: is this root, with CAP_SYS_ADMIN?")


def _link(plan: Plan, inner: int) -> None:
    """A veth pair: the host end is named for the node, the inner end is eth0; routes to pods and services."""
    subprocess.run(["ip", "link", "del", plan["link"]], capture_output=True, check=False)
    inside = ["nsenter", "--target", str(inner), "--net", "ip"]
    for argv in (
        ["ip", "link", "add", plan["link"], "type", "veth", "peer", "name", "eth0", "netns", str(inner)],
        ["ip", "addr", "add", f"{plan['host_address']}/30", "dev", plan["link"]],
        ["ip", "link", "set", plan["link"], "up"],
        [*inside, "link", "set", "lo", "up"],
        [*inside, "addr", "add", f"{plan['address']}/30", "dev", "eth0"],
        [*inside, "link", "set", "eth0", "up"],
        [*inside, "route", "add", "default", "via", plan["host_address"]],
        *(["ip", "route", "replace", each, "via", plan["address"]] for each in plan["routes"]),
    ):
        subprocess.run(argv, check=True)


def make_cgroups(name: str) -> None:
    """The node's own root in every cgroup hierarchy (v1), or in the one there is (v2)."""
    for hierarchy in _hierarchies():
        (hierarchy / name).mkdir(exist_ok=True)
        if hierarchy.name == "cpuset":
            # A new v1 cpuset is empty, and nothing can run in an empty one.
            for file in ("cpuset.cpus", "cpuset.mems"):
                (hierarchy / name / file).write_text((hierarchy / file).read_text())
        if (hierarchy / "cgroup.controllers").exists():
            wanted = {"cpu", "cpuset", "io", "memory", "pids", "hugetlb"}
            have = wanted & set((hierarchy / "cgroup.controllers").read_text().split())
            for folder in (hierarchy, hierarchy / name):
                with contextlib.suppress(OSError):
                    (folder / "cgroup.subtree_control").write_text(" ".join(f"+{c}" for c in have))


def remove_cgroups(name: str) -> None:
    """Remove the node's cgroups; processes that are about to end are waited for, 60 s at most."""
    deadline = time.monotonic() + 60
    while left := [folder for hierarchy in _hierarchies() for folder in _below(hierarchy / name)]:
        for folder in left:
            with contextlib.suppress(OSError):
                folder.rmdir()
        if time.monotonic() > deadline:
            print(f"cgroups that could not be removed: {left}", file=sys.stderr)
            return
        time.sleep(0.02)


def cgroups_of(name: str) -> list[Path]:
    """The node's root in each hierarchy where it exists."""
    return [hierarchy / name for hierarchy in _hierarchies() if (hierarchy / name).is_dir()]


def _hierarchies() -> list[Path]:
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return [
        folder
        for folder in CGROUPS.iterdir()
        if (folder / "cgroup.procs").exists() and not folder.is_symlink()
    ]


def _below(folder: Path) -> Iterator[Path]:
    """The folder and those in it, innermost first."""
    if folder.is_dir():
        for path, _, _ in os.walk(folder, topdown=False):
            yield Path(path)


# ---- inside ------------------------------------------------------------------------------------------


def init(plan: Plan) -> int:
    """Be process 1: private folders, then the programs, each again when it ends, and every orphan reaped."""
    folder = Path(plan["folder"])
    _mount("-t", "tmpfs", "-o", "mode=0755", "toolcrib-node", "/run")
    # kubelet and CNI write below /var/lib under fixed names; what else is there may be needed.
    for name in ("var-lib", "var-lib-work", "var-log"):
        (folder / name).mkdir(exist_ok=True)
    layers = f"lowerdir=/var/lib,upperdir={folder}/var-lib,workdir={folder}/var-lib-work"
    _mount("-t", "overlay", "-o", layers, "toolcrib-node", "/var/lib")
    _mount("--bind", str(folder / "var-log"), "/var/log")
    resolver = Path("/etc/resolv.conf").resolve()
    resolver.parent.mkdir(parents=True, exist_ok=True)
    resolver.touch()  # where it is a link into /run, which is empty now
    _mount("--bind", str(folder / "resolv.conf"), str(resolver))
    if os.read(0, 16) != b"go\n":
        return 1
    # Process 1 has no default handlers: a signal without one would be ignored.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    waiting = [dict(each, due=0.0) for each in plan["programs"]]
    running: dict[int, Plan] = {}
    while True:
        for program in list(waiting):
            held = (folder / "hold" / program["name"]).exists()
            if time.monotonic() >= program["due"] and not held and _open(program["after"]):
                waiting.remove(program)
                running[_start(program, folder)] = program
        signal.sigtimedwait({signal.SIGCHLD}, 0.05 if waiting else 0.5)
        for pid in _ended():
            if program := running.pop(pid, {}):
                waiting.append({**program, "due": time.monotonic() + RESTART_AFTER})
        if select.select([0], [], [], 0)[0]:
            return 0


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def _start(program: Plan, folder: Path) -> int:
    with (folder / "log" / f"{program['name']}.log").open("ab") as log:
        return subprocess.Popen(
            program["argv"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            # GOGC as processes.GO_SERVERS has it, which this program, alone in its jail, does not import
            env={"PATH": plan_path(), "HOME": str(folder), "GOGC": "400"}, restore_signals=True,
            # The mask is inherited: Go programs would never hear of their children.
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD}) and None,
        ).pid  # fmt: skip


def plan_path() -> str:
    """Where containerd finds runc and the shim, and kube-proxy iptables."""
    return "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def _ended() -> Iterator[int]:
    with contextlib.suppress(ChildProcessError):
        while pid := os.waitpid(-1, os.WNOHANG)[0]:
            yield pid


def _open(place: str) -> bool:
    """Whether something listens: `host:port`, the path of a socket, or empty for nothing to wait for."""
    if not place:
        return True
    kind, where = socket.AF_UNIX, place
    if not place.startswith("/"):
        host, port = place.rsplit(":", 1)
        kind, where = socket.AF_INET, (host, int(port))  # type: ignore[assignment]
    with contextlib.suppress(OSError), socket.socket(kind) as probe:
        probe.settimeout(1)
        probe.connect(where)
        return True
    return False


if __name__ == "__main__":
    sys.exit({"keep": keep, "init": init}[sys.argv[1]](json.loads(Path(sys.argv[2]).read_text())))
