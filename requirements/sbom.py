"""Write the bill of materials of the image: what `requirements/runtime.txt` became, and the base below it.

    python requirements/sbom.py --python /opt/toolcrib/bin/python --root /base > sbom.cdx.json

CycloneDX 1.6 JSON. Python distributions come from `cyclonedx-py environment`, with their licences; Debian packages
from dpkg's own status below `--root`, with those of their machine-readable copyright files. What the wheel carries of
others (Swagger UI, the embedding model) comes from the sources. Checked against CycloneDX's schema before it is written.
Runs in the build stage: nothing of it is in the image.
"""

import argparse
import gzip
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

_ASSETS = Path("cli/toolcrib_cli/local/api_docs/assets")
_MODEL = Path("registry_api/toolcrib_registry/model")
_MOST_LICENCES = 20


def main(arguments: Sequence[str]) -> int:
    """Run the command line; 1 where the document does not hold to its schema."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--python", required=True, help="the interpreter of the environment")
    parser.add_argument("--root", type=Path, default=Path("/"), help="the base image's file system")
    options = parser.parse_args(arguments)
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    text = json.dumps(bill(options.python, options.root), indent=1, sort_keys=True)
    wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if wrong is not None:
        print(f"sbom: {wrong}", file=sys.stderr)
        return 1
    print(text)
    return 0


def bill(python: str, root: Path, project: Path = Path()) -> dict[str, Any]:
    """The whole document; the main component is the project that `project` holds the sources of."""
    command = [sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible", "--no-validate"]
    command += ["--of", "JSON", "--sv", "1.6", "--pyproject", str(project / "pyproject.toml"), python]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    document: dict[str, Any] = json.loads(done.stdout)
    own = document["metadata"]["component"]
    version = re.search(r'__version__ = "(.+)"', (project / "version.py").read_text())
    own["version"] = version[1] if version else "unknown"
    own["purl"] = f"pkg:pypi/{own['name']}@{own['version']}"
    components: list[dict[str, Any]] = document["components"]
    components.append(_client(own))
    components += (swagger_ui(project), embedding_model(project))
    components.append(_interpreter(python))
    release = dict(_os_release(root))
    if release:
        components.append(_operating_system(release))
    components += (_debian(package, release, root) for package in installed(root))
    return document


def installed(root: Path) -> Iterator[dict[str, str]]:
    """The packages that dpkg knows as installed; also those of images that keep one file a package."""
    for path in [root / "var/lib/dpkg/status", *sorted((root / "var/lib/dpkg/status.d").glob("*"))]:
        if not path.is_file() or path.suffix == ".md5sums":
            continue
        for stanza in path.read_text(errors="replace").split("\n\n"):
            fields = dict(re.findall(r"^([A-Za-z-]+): *(.*)$", stanza, re.MULTILINE))
            if "Package" in fields and fields.get("Status", "install ok installed").endswith(" installed"):
                yield fields


def _client(own: dict[str, Any]) -> dict[str, Any]:
    """Its library, a distribution of the same release that is in no lock."""
    name = f"{own['name']}-client"
    purl = f"pkg:pypi/{name}@{own['version']}"
    about = {"bom-ref": purl, "name": name, "version": own["version"], "purl": purl}
    return {"type": "library", "licenses": [{"license": {"id": "Apache-2.0"}}], **about}


def swagger_ui(project: Path) -> dict[str, Any]:
    """The files of the API's pages; the script says of which version."""
    script = gzip.decompress((project / _ASSETS / "swagger-ui-bundle.js.gz").read_bytes())
    said = re.findall(rb'PACKAGE_VERSION:"([0-9.]+)"', script)
    if len(said) != 1:
        raise ValueError("swagger-ui-bundle.js does not say its version")
    name, version = "swagger-ui-dist", said[0].decode()
    purl = f"pkg:npm/{name}@{version}"
    files = sorted(each for each in (project / _ASSETS).iterdir() if "swagger-ui" in each.name)
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        "licenses": [{"license": {"id": "Apache-2.0"}}],
        "components": [_file(each, purl) for each in files],
    }


def embedding_model(project: Path) -> dict[str, Any]:
    """The packaged model, by its digest: it has no other version."""
    folder = project / _MODEL
    licence = [{"license": {"id": "Apache-2.0"}}]
    files = [_file(folder / name, "toolcrib-embedding-model") for name in ("model.onnx", "tokenizer.json")]
    version = files[0]["hashes"][0]["content"]
    if version not in (folder / "MODEL_CARD.md").read_text():
        raise ValueError("MODEL_CARD.md is of another model.onnx")
    base = {
        "type": "machine-learning-model",
        "name": "sentence-transformers/all-MiniLM-L6-v2",
        "licenses": licence,
    }
    return {
        "type": "machine-learning-model",
        "bom-ref": f"toolcrib-embedding-model@{version}",
        "name": "toolcrib-embedding-model",
        "version": version,
        "purl": f"pkg:generic/toolcrib-embedding-model@{version}",
        "licenses": licence,
        "pedigree": {"ancestors": [base]},
        "components": files,
    }


def _file(path: Path, of: str) -> dict[str, Any]:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    hashes = [{"alg": "SHA-256", "content": digest}]
    return {"type": "file", "bom-ref": f"{of}#{path.name}", "name": path.name, "hashes": hashes}


def _interpreter(python: str) -> dict[str, Any]:
    """Python itself: in the official Python images it is no package of the system's."""
    code = "import platform; print(platform.python_version())"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    version = done.stdout.strip()
    return {
        "type": "platform",
        "bom-ref": f"python@{version}",
        "name": "python",
        "version": version,
        "purl": f"pkg:generic/python@{version}",
        "cpe": f"cpe:2.3:a:python:python:{version}:*:*:*:*:*:*:*",
        "licenses": [{"license": {"id": "PSF-2.0"}}],
    }


def _os_release(root: Path) -> Iterator[tuple[str, str]]:
    for name in ("etc/os-release", "usr/lib/os-release"):
        path = root / name
        if path.is_file():
            pairs = (line.partition("=") for line in path.read_text().splitlines())
            yield from ((key, value.strip("\"'")) for key, _, value in pairs if value)
            return


def _operating_system(release: dict[str, str]) -> dict[str, Any]:
    name, version = release.get("ID", "linux"), release.get("VERSION_ID", "unknown")
    return {"type": "operating-system", "bom-ref": f"os:{name}@{version}", "name": name, "version": version}


def _debian(package: dict[str, str], release: dict[str, str], root: Path) -> dict[str, Any]:
    name, version = package["Package"], package.get("Version", "unknown")
    distribution = release.get("ID", "debian")
    qualifiers = f"arch={package.get('Architecture', 'all')}"
    if "VERSION_ID" in release:
        qualifiers += f"&distro={distribution}-{release['VERSION_ID']}"
    purl = f"pkg:deb/{distribution}/{quote(name, safe='.-')}@{quote(version, safe='.-~')}?{qualifiers}"
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        "description": package.get("Description", ""),
    }
    licences = list(_licences(root / "usr/share/doc" / name / "copyright"))
    if licences:
        component["licenses"] = [{"license": {"name": licence}} for licence in licences]
    return component


def _licences(path: Path) -> Iterator[str]:
    """The names in a machine-readable copyright file, in their order, each once."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return
    if "copyright-format" not in text[:500]:
        return
    names = (name.strip() for name in re.findall(r"^License:[ \t]*(\S.*)$", text, re.MULTILINE))
    yield from list(dict.fromkeys(names))[:_MOST_LICENCES]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
