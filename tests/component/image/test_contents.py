"""What is in the image, and what is not: programs, rights, traces of the machine that built it, labels, materials."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from containers import TAG, once
from realparts import docker
from toolcrib import __version__

pytestmark = pytest.mark.node

MOST_MB = 650
"""A ratchet: unpacked, on the Debian base of the tests."""
FOREIGN = ("usr/share/ca-certificates", "etc/ssl/certs")
"""Public authorities have addresses; they are the base's."""


@pytest.fixture(scope="module")
def image(engine: docker.Engine) -> Any:
    """What `docker image inspect` says."""
    return json.loads(engine.run("image", "inspect", TAG).stdout)[0]


@pytest.fixture(scope="module")
def history(engine: docker.Engine) -> str:
    return engine.run("history", "--no-trunc", "--format", "{{.CreatedBy}} {{.Comment}}", TAG).stdout


@pytest.fixture(scope="module")
def bill(engine: docker.Engine) -> Any:
    return json.loads(once(engine, "/usr/share/toolcrib/sbom.cdx.json", entrypoint="cat").stdout)


def shell(engine: docker.Engine, script: str) -> list[str]:
    """Lines that a script prints as root in the image, so that it sees every file."""
    done = engine.run(
        "run",
        "--rm",
        "--network",
        "none",
        "--user",
        "0",
        "--entrypoint",
        "sh",
        TAG,
        "-c",
        script,
        check=False,
    )
    return done.stdout.splitlines()


def test_its_size_is_known(image: Any, capsys: pytest.CaptureFixture[str]) -> None:
    size = image["Size"] / 1e6
    with capsys.disabled():
        print(f"\nimage: {size:.0f} MB unpacked, {len(image['RootFS']['Layers'])} layers")

    assert size < MOST_MB


def test_an_upgrade_of_toolcrib_alone_is_a_small_layer(engine: docker.Engine) -> None:
    listed = engine.run(
        "history", "--no-trunc", "--human=false", "--format", "{{.Size}} {{.CreatedBy}}", TAG
    ).stdout
    own = [line for line in listed.splitlines() if "/own/opt/toolcrib" in line]

    assert len(own) == 1
    assert int(own[0].split()[0]) < 40e6


def test_it_runs_as_nobody_with_the_program_as_its_entry_point(image: Any) -> None:
    config = image["Config"]

    assert config["User"] == "65532:65532"
    assert config["Entrypoint"] == ["toolcrib"]
    assert config["Cmd"] == ["--help"]
    assert config["StopSignal"] == "SIGTERM"
    assert config["Healthcheck"]["Test"] == ["CMD", "toolcrib", "health"]
    assert not config.get("Volumes")
    assert not config.get("ExposedPorts")


def test_the_labels_are_those_of_oci_and_true(image: Any) -> None:
    labels = {
        key.removeprefix("org.opencontainers.image."): v for key, v in image["Config"]["Labels"].items()
    }
    head = subprocess.run(["git", "cat-file", "-t", labels["revision"]], capture_output=True, text=True)

    assert labels["title"] == "Toolcrib"
    assert labels["version"] == __version__
    assert labels["licenses"] == "Apache-2.0"
    assert head.stdout.strip() == "commit"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", labels["created"])
    assert {"description", "source"} <= labels.keys()


def test_no_installer_compiler_cache_or_setuid_file_is_in_it(engine: docker.Engine) -> None:
    programs = "pip pip3 uv gcc cc g++ make ld git curl wget hatchling cyclonedx-py"

    assert shell(engine, f"for p in {programs}; do command -v $p; done; exit 0") == []
    assert shell(engine, "python -c 'import pip' 2>&1 | tail -1")[0].startswith("ModuleNotFoundError")
    assert shell(engine, "python -c 'import ensurepip' 2>&1 | tail -1")[0].startswith("ModuleNotFoundError")
    assert shell(engine, "find / -xdev -perm /6000 -type f") == []
    assert shell(engine, "ls -A /var/lib/apt/lists /var/cache /root /tmp /home | grep -v : | grep .") in (
        [],
        [".bashrc", ".profile"],
    )
    assert shell(engine, "find / -xdev \\( -name '*.whl' -o -name pip.conf -o -name '.pip*' \\)") == []
    assert shell(engine, "find /opt -type d -name tests") == []


def test_nothing_of_it_can_be_written_by_its_user(engine: docker.Engine) -> None:
    found = shell(engine, "find / -xdev -type f \\( -user 65532 -o -perm -0002 \\)")

    assert found == []


def test_its_bytecode_is_there_since_it_cannot_be_written_later(engine: docker.Engine) -> None:
    code = (
        "import importlib.util, sys, os, toolcrib_registry.main, toolcrib_operator.main, toolcrib_runner.main\n"
        "for m in list(sys.modules.values()):\n"
        "    f = getattr(m, '__file__', None) or ''\n"
        "    if f.endswith('.py') and not os.path.exists(importlib.util.cache_from_source(f)): print(f)\n"
    )

    done = once(engine, "-c", code, entrypoint="python")

    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_nothing_tells_where_it_was_built(engine: docker.Engine, image: Any, history: str) -> None:
    told = json.dumps(image["Config"]) + history
    hosts = machine_hosts()

    for secret in ("PIP_", "SSL_CERT", "proxy", "/etc/ssl/certs/ca-certificates.crt", *hosts):
        assert secret.lower() not in told.lower(), secret
    # the two lines of the Dockerfile that handle secrets belong to a stage of which nothing is left but files
    assert "/run/secrets" not in told
    paths = [str(Path(__file__).parents[3]), str(Path.home() / ".cache/toolcrib"), *hosts]
    patterns = " ".join(f"-e {path}" for path in paths)
    assert (
        shell(engine, f"grep -rlF {patterns} /opt /usr/share/toolcrib /etc /usr/lib/python3 2>/dev/null")
        == []
    )
    assert shell(engine, "find / -xdev -name direct_url.json") == []
    assert shell(engine, "ls -A /run/secrets 2>/dev/null") == []


def test_the_authorities_of_the_machine_stay_outside(engine: docker.Engine) -> None:
    inside = set(shell(engine, "ls /usr/local/share/ca-certificates"))

    assert inside == set()


def test_the_bill_of_materials_is_of_this_version(bill: Any) -> None:
    assert bill["metadata"]["component"]["name"] == "toolcrib"
    assert bill["metadata"]["component"]["version"] == __version__


def test_the_bill_of_materials_names_exactly_what_is_installed(engine: docker.Engine, bill: Any) -> None:
    code = (
        "import importlib.metadata as m, json\n"
        "print(json.dumps(sorted({(d.name.lower().replace('_', '-'), d.version) for d in m.distributions()})))"
    )
    installed = {tuple(pair) for pair in json.loads(once(engine, "-c", code, entrypoint="python").stdout)}
    debian = {tuple(x.split("\t")) for x in shell(engine, "dpkg-query -W -f '${Package}\\t${Version}\\n'")}
    parts = [*bill["components"], bill["metadata"]["component"]]

    listed = {
        (c["name"].lower().replace("_", "-"), c["version"])
        for c in parts
        if "purl" not in c or "pypi" in c["purl"]
    }
    assert {pair for pair in listed if pair[0] != "debian"} == installed
    assert {(c["name"], c["version"]) for c in parts if c.get("purl", "").startswith("pkg:deb/")} == debian
    assert {"debian"} == {c["name"] for c in parts if c["type"] == "operating-system"}


def test_the_bill_of_materials_lists_what_the_wheel_carries_of_others(
    engine: docker.Engine, bill: Any
) -> None:
    carried = {
        c["name"]: c
        for c in bill["components"]
        if c["name"] in ("swagger-ui-dist", "toolcrib-embedding-model")
    }

    assert len(carried) == 2
    for each in carried.values():
        assert (each["licenses"], bool(each["version"])) == ([{"license": {"id": "Apache-2.0"}}], True)
        for file in each["components"]:
            (line,) = shell(engine, f"find /opt/toolcrib -name {file['name']} -exec sha256sum {{}} +")
            assert line.split()[0] == file["hashes"][0]["content"]


def test_every_distribution_states_its_licence_and_most_packages_do(bill: Any) -> None:
    without = [c for c in bill["components"] if c["type"] == "library" and not c.get("licenses")]

    assert len([c for c in without if c["purl"].startswith("pkg:pypi/")]) <= 3, without
    # the rest are Debian's older copyright files, which only a person can read
    assert len(without) < len(bill["components"]) / 4, without


def machine_hosts() -> set[str]:
    """Hosts that this machine's pip and proxies are set to, but for the public index."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True
    ).stdout
    addresses = re.findall(r"https?://[^'\"\s]+", listed)
    addresses += [
        value for key, value in os.environ.items() if key.lower().endswith("_proxy") and "://" in value
    ]
    return {host for a in addresses if (host := urlsplit(a).hostname)} - {
        "pypi.org",
        "files.pythonhosted.org",
    }
