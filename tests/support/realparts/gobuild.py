"""Building a real server from its pinned Go module into the cache, once, with progress.

The program appears in the cache by one rename, with its checksum, or not at all; a lock keeps two runs from
building the same. Standard library only.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from realparts import cache, gotool, lookup, progress
from realparts.parts import Part


class BuildFailedError(RuntimeError):
    """Go could not build a part; the message ends with what Go said."""


def build(part: Part, environ: Mapping[str, str], out: TextIO) -> lookup.Found:
    """Build a part into the cache and return it; at once if another run has done so meanwhile.

    Progress goes to `out`. Raises gotool.GoMissingError or BuildFailedError; then, and when interrupted, the
    program in the cache is as before.
    """
    folder = lookup.cache_folder(environ)
    with cache.locked(folder, out):
        found = lookup.cached(part, environ)
        if found:
            return found
        with_go = gotool.environment(part.folder, environ, out)
        work = progress.Work(part.name, part.version, progress.usual(folder, {part.name: part.seconds}))
        with cache.renewed(lookup.cache_path(part, environ).parent) as scratch:
            # What an interrupted Go leaves of its own work goes with the rest.
            (scratch / "tmp").mkdir()
            _build_into(scratch / "new", part, work, {**with_go, "GOTMPDIR": str(scratch / "tmp")}, out)
        cache.record_time(folder, part.name, work.seconds)
        found = lookup.cached(part, environ)
    if not found:
        raise BuildFailedError(f"{part.name}: the built file cannot be read back")
    return found


def _build_into(
    folder: Path, part: Part, work: progress.Work, environ: Mapping[str, str], out: TextIO
) -> None:
    folder.mkdir()
    binary = folder / part.binaries[0]
    # Pure Go, so no C compiler is needed; the modules are exactly those of go.sum.
    env = {**environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}
    listing = ["go", "list", "-deps", part.package]
    building = ["go", "build", "-v", "-p", "2", "-trimpath", f"-ldflags={part.ldflags}", "-o", str(binary)]
    command = listing
    try:
        packages = progress.run(command, work, "fetching modules", out, cwd=part.folder, env=env, most=0)
        command = [*building, part.package]
        progress.run(command, work, "building", out, cwd=part.folder, env=env, most=len(packages))
    except progress.ProgramError as error:
        reports = "\n".join(error.reports)
        raise BuildFailedError(
            f"{part.name}: `{' '.join(command[:2])}` failed with {error.status}:\n{reports}"
        ) from None
    lookup.write_checksum(binary)
