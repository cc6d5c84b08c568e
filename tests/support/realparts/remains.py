"""What a test node has on this machine, to see that nothing is left of it."""

import contextlib
import subprocess
from pathlib import Path

from realparts import nodejail, nodeplan


def remains(folder: Path, number: int) -> list[str]:
    """What is on this machine of the node of that folder and number: empty when it has ended and was its only one."""
    at, link = nodeplan.Addresses(number), nodeplan.link(number)
    links = subprocess.run(["ip", "-brief", "link"], capture_output=True, text=True, check=True).stdout
    routes = subprocess.run(["ip", "route"], capture_output=True, text=True, check=True).stdout
    rules = subprocess.run(["iptables-save"], capture_output=True, text=True, check=False).stdout
    found = [f"link {link}"] if f"{link}@" in links else []
    found += [f"route {each}" for each in (at.pods, at.services) if each in routes]
    found += [f"firewall {line}" for line in rules.splitlines() if "KUBE-" in line or "CNI-" in line]
    mounts = Path("/proc/mounts").read_text().splitlines()
    found += [f"mount {line}" for line in mounts if str(folder) in line]
    found += [f"cgroup {each}" for each in nodejail.cgroups_of(nodeplan.cgroup(number))]
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes()
            found += [f"process {words!r}"] if str(folder).encode() in words else []
    return found + ([f"folder {folder}"] if folder.exists() else [])
