"""How a command of this folder ends: its figures in a file, or in words what cannot be used."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import folder

from toolcrib_registry.search.errors import EmbedderUnavailable


def writable(path: str | Path) -> Path:
    """Where figures can be written to, tried at once: what was measured must not be lost for it. For argparse.

    Raises:
        argparse.ArgumentTypeError: nothing can be written there.
    """
    # a link stays one, with the figures behind it
    real = Path(os.path.realpath(path))
    if not real.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {real.parent}")
    if real.exists() and not real.is_file():
        raise argparse.ArgumentTypeError(f"{real} is {'a folder' if real.is_dir() else 'not a file'}")
    try:
        _beside(real).touch()
        _beside(real).unlink()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{real} cannot be written: {error.strerror}") from None
    return real


def write(path: Path | None, figures: Any) -> None:
    """Put `figures` as JSON in the place of the file, whole or not at all; nowhere, if None.

    Raises:
        ValueError: a figure is not a number, which JSON cannot say.
    """
    if path is None:
        return
    text = json.dumps(figures, indent=1, allow_nan=False) + "\n"
    try:
        _beside(path).write_text(text)
        _beside(path).replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            _beside(path).unlink()
        raise


def status(command: Callable[[], int], *known: type[Exception]) -> int:
    """The exit status of `command`: 2 with its words for data, a model or one of `known` that it cannot use."""
    try:
        return command()
    except folder.DataError as error:
        print(f"The data cannot be used:\n{error}", file=sys.stderr)
    except (EmbedderUnavailable, *known) as error:
        print(error, file=sys.stderr)
    return 2


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.{os.getpid()}.part")
