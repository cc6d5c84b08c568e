"""A tool to start from: manifests, a service that verifies the call assertion, and how to run them."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from string import Template

from toolcrib_cli.errors import CliError, Exit

FILES = ("tool.yaml", "binding.yaml", "service.py", "README.md")
VERIFIER = "assertion.py"
NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def write(folder: Path, namespace: str | None) -> tuple[str, list[Path]]:
    """Write the files into a folder, which is made if need be; the namespace, and the files.

    Args:
        namespace: of the manifests; None: the folder's name.

    Raises:
        CliError: a file is there already (nothing is written then), or the folder cannot be written.
    """
    given = namespace or _label(folder.resolve().name)
    if NAMESPACE.fullmatch(given) is None:
        raise CliError(
            f"{given!r} cannot be a namespace: lower-case letters, digits and `-`, at most 63 characters",
            hint="specify one with --namespace",
            code=Exit.USAGE,
        )
    contents = {folder / name: text for name, text in _contents(given).items()}
    if there := [file.name for file in contents if file.exists() or file.is_symlink()]:
        raise CliError(
            f"{folder} has {', '.join(there)} already; nothing was written",
            hint="choose another folder",
            code=Exit.USAGE,
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in contents.items():
            with file.open("x", encoding="utf-8") as out:
                out.write(text)
    except OSError as error:
        raise CliError(
            f"cannot write {folder}: {error.strerror}",
            hint="choose a folder that you may write to",
            code=Exit.USAGE,
        ) from error
    return given, list(contents)


def _contents(namespace: str) -> dict[str, str]:
    package = resources.files("toolcrib_cli")
    found = {
        name: Template((package / "starter" / f"{name}.template").read_text(encoding="utf-8")).substitute(
            namespace=namespace
        )
        for name in FILES
    }
    # the one that the example tools run
    return found | {VERIFIER: (package / "example_tools" / VERIFIER).read_text(encoding="utf-8")}


def _label(name: str) -> str:
    """A folder's name as a namespace, as far as it can be one."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:63].strip("-")
