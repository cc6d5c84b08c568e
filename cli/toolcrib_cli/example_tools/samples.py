"""The sample data of the tools: a shared folder and a small database, unpacked from the package."""

import os
import shutil
import sqlite3
import tempfile
from contextlib import closing
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Samples:
    """Where the tools find their data."""

    shared_folder: Path
    database: Path


def prepare_samples(folder: Path) -> Samples:
    """Unpack the samples below `folder`, which is created if need be.

    The shared folder is the user's once it exists: it is never overwritten. The database is rebuilt at every
    start and swapped in whole, so that a damaged file heals and two starts at once do no harm. Raises
    OSError.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    shared, database = folder / "shared", folder / "heist.db"
    packaged = files("toolcrib_cli.example_tools") / "data"
    if not shared.exists():
        with as_file(packaged / "shared") as source:
            staged = Path(tempfile.mkdtemp(prefix=".shared-", dir=folder))
            shutil.copytree(source, staged, dirs_exist_ok=True)
        try:
            staged.rename(shared)
        except OSError:
            # Another start was quicker; its copy is as good.
            shutil.rmtree(staged)
    _build_database(database, (packaged / "heist.sql").read_text(encoding="utf-8"))
    return Samples(shared_folder=shared, database=database)


def _build_database(file: Path, script: str) -> None:
    descriptor, name = tempfile.mkstemp(prefix=".heist-", dir=file.parent)
    os.close(descriptor)
    try:
        with closing(sqlite3.connect(name)) as connection:
            connection.executescript(script)
        os.replace(name, file)
    except BaseException:
        os.unlink(name)
        raise
