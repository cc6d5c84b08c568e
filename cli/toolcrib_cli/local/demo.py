"""The heist as the demonstration of `toolcrib up --demo`: a copy in the data folder, to edit and to revoke."""

from __future__ import annotations

import shutil
from importlib import resources
from pathlib import Path

from toolcrib_cli.errors import CliError

FOLDER = "demo"
_CHECKOUT = Path(__file__).resolve().parents[3] / "examples" / "heist"


def written(folder: Path) -> Path:
    """The folder with the demonstration's manifests; written once, so that edits stay.

    Raises:
        CliError: it cannot be written.
    """
    if folder.exists():
        return folder
    packaged = resources.files("toolcrib_cli") / FOLDER
    draft = folder.with_name(f".{folder.name}.new")
    try:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(mode=0o700)
        # a checkout has them where they are kept
        source = packaged if packaged.is_dir() else _CHECKOUT
        for file in source.iterdir():
            if file.name.endswith(".yaml"):
                (draft / file.name).write_bytes(file.read_bytes())
                (draft / file.name).chmod(0o600)
        draft.rename(folder)
    except OSError as error:
        raise CliError(
            f"cannot write {folder}: {error.strerror or error}", hint="choose another data folder with --data"
        ) from error
    return folder
