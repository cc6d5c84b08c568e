"""Images for the node: brought into its containerd, from docker or from an archive."""

import contextlib
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def import_image(socket: Path, image: str | Path, docker: Mapping[str, str] | None = None) -> None:
    """Bring one image into the containerd at that socket: an archive (`*.tar`), or a name that docker has.

    `docker` is the environment of the docker client. Raises RuntimeError with what was said.
    """
    ctr = ["ctr", "--address", str(socket), "--namespace", "k8s.io", "images", "import", "-"]
    with contextlib.ExitStack() as stack:
        save = None
        if str(image).endswith(".tar"):
            source: Any = stack.enter_context(Path(image).open("rb"))
        else:
            save = subprocess.Popen(["docker", "save", str(image)], stdout=subprocess.PIPE, env=docker)
            source = save.stdout
        done = subprocess.run(ctr, stdin=source, capture_output=True, text=True, check=False)
        if save and save.wait() != 0:
            raise RuntimeError(f"docker save {image} failed: is the image there?")
    if done.returncode != 0:
        raise RuntimeError(f"importing {image}: {done.stderr}")
