"""Build the image with the docker engine that docker talks to, print its size, write its bill of materials.

    python requirements/image.py [--tag toolcrib:dev] [--base IMAGE] [--builder IMAGE] [--sbom FILE]

`make image TAG=… BASE_IMAGE=…` runs it. Version, revision and date of the labels come from the source, git and the
last commit, so one revision always has the same labels. pip in the build uses this user's own pip settings (index and
certificates), handed over as build secrets: nothing of them is in the image. Needs nothing but Python and docker.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SBOM = "/usr/share/toolcrib/sbom.cdx.json"
# Where systems keep the bundle of authorities they trust; a build behind a proxy of its own needs it.
_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
_PIP_KEYS = ("index-url", "extra-index-url", "trusted-host", "timeout", "default-timeout")


class BuildError(Exception):
    """Why there is no image, for the person who reads it."""


def main(arguments: Sequence[str]) -> int:
    """Run the command line; 1 with a message where there is no image."""
    parser = argparse.ArgumentParser(prog="build.py", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--tag", default="toolcrib:dev", help="its name; default toolcrib:dev")
    parser.add_argument("--base", default="", help="base image, by digest if it shall be the same tomorrow")
    parser.add_argument("--builder", default="", help="image to build in; default the base")
    parser.add_argument("--sbom", type=Path, help="where to write sbom.cdx.json too")
    parser.add_argument("--network", default="", help="network of the build, for `docker build --network`")
    parser.add_argument("--no-cache", action="store_true", help="use no layer of an earlier build")
    options = parser.parse_args(arguments)
    try:
        require_builder()
        with tempfile.TemporaryDirectory(prefix="toolcrib-secrets-") as folder:
            command = build_command(options, secrets(Path(folder)))
            if subprocess.run(command, env={**os.environ, "DOCKER_BUILDKIT": "1"}, check=False).returncode:
                raise BuildError("the image was not built; docker says why above")
        print(f"{options.tag}: {size(options.tag) / 1e6:.0f} MB, {layers(options.tag)} layers")
        if options.sbom:
            write_sbom(options.tag, options.sbom)
            print(f"bill of materials: {options.sbom}")
    except BuildError as error:
        print(f"image: {error}", file=sys.stderr)
        return 1
    return 0


def build_command(options: argparse.Namespace, secret_files: Mapping[str, Path]) -> list[str]:
    """`docker build` with its arguments; secrets by id."""
    values = {"VERSION": version(), "REVISION": _git("rev-parse", "HEAD"), "CREATED": created()}
    values |= {"BASE_IMAGE": options.base, "BUILDER_IMAGE": options.builder}
    command = [docker(), "build", "-t", options.tag]
    for name, value in values.items():
        command += ["--build-arg", f"{name}={value}"] if value else []
    for name, path in secret_files.items():
        command += ["--secret", f"id={name},src={path}"]
    command += ["--network", options.network] if options.network else []
    command += ["--no-cache"] if options.no_cache else []
    return [*command, str(ROOT)]


def secrets(folder: Path) -> dict[str, Path]:
    """pip's index and the trusted authorities of this machine, as files; a written one goes into `folder`."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    ).stdout
    settings = dict(_pip_settings(listed))
    path = folder / "pip.conf"
    path.touch(mode=0o600)
    path.write_text("[global]\n" + "".join(f"{k} = {settings[k]}\n" for k in _PIP_KEYS if k in settings))
    bundles = (settings.get("cert", ""), os.environ.get("SSL_CERT_FILE", ""), *_BUNDLES)
    found = [Path(bundle) for bundle in bundles if bundle and Path(bundle).is_file()]
    return {"pip.conf": path} | ({"ca.crt": found[0]} if found else {})


def version() -> str:
    """The version in the source. Raises BuildError."""
    found = re.search(r'__version__ = "(.+)"', (ROOT / "core" / "toolcrib" / "version.py").read_text())
    if found is None:
        raise BuildError("core/toolcrib/version.py states no version")
    return found[1]


def created() -> str:
    """When the revision was made, RFC 3339, in UTC."""
    return _git("log", "-1", "--date=format-local:%Y-%m-%dT%H:%M:%SZ", "--format=%cd")


def size(tag: str) -> int:
    """Bytes of all layers, unpacked."""
    return int(_docker("image", "inspect", "--format", "{{.Size}}", tag))


def layers(tag: str) -> int:
    """How many layers with content."""
    return int(_docker("image", "inspect", "--format", "{{len .RootFS.Layers}}", tag))


def write_sbom(tag: str, target: Path) -> None:
    """Copy the bill of materials out of an image. Raises BuildError."""
    container = _docker("create", tag)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _docker("cp", f"{container}:{SBOM}", str(target))
    finally:
        _docker("rm", container)


def docker() -> str:
    """The docker client: `DOCKER`, or the one on PATH."""
    return os.environ.get("DOCKER", "docker")


def require_builder() -> None:
    """Raise BuildError unless the client can build with BuildKit: docker's, from 23 on, by its plugin buildx."""
    try:
        stated = subprocess.run([docker(), "--version"], capture_output=True, text=True, check=False).stdout
    except OSError as error:
        raise BuildError(
            f"no docker client: {error.strerror}: {docker()}; install docker 23 or newer with buildx "
            "(https://docs.docker.com/engine/install/), or name another client in DOCKER"
        ) from None
    major = re.match(r"Docker version (\d+)\.", stated)
    if major is None or int(major[1]) < 23:  # another client, or one that has BuildKit in itself
        return
    if subprocess.run([docker(), "buildx", "version"], capture_output=True, check=False).returncode:
        raise BuildError(
            f"docker {major[1]} builds by its plugin buildx, and it is not here: install docker-buildx-plugin "
            "(Docker's packages) or docker-buildx (Debian 13's, Ubuntu's; Debian 12's docker.io needs none)"
        )


def _docker(*arguments: str) -> str:
    done = subprocess.run([docker(), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"docker {' '.join(arguments[:2])}: {done.stderr.strip()}")
    return done.stdout.strip()


def _git(*arguments: str) -> str:
    """What git says, nothing where the source is no repository."""
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "TZ": "UTC"},
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _pip_settings(listed: str) -> Iterator[tuple[str, str]]:
    for line in listed.splitlines():
        key, _, value = line.partition("=")
        yield key.rpartition(".")[2], value.strip("'\"")


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (BuildError, OSError) as error:
        print(f"image: {error}", file=sys.stderr)
        sys.exit(1)
