"""`make fresh-machine-test`: what it needs is said at once, what it lends is chosen, what it found stands in the docs."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fresh_debian
from realparts import debian, freshroot
from realparts.required import required

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "contributing" / "fresh-machine.md"


def test_the_removal_table_of_the_docs_is_that_of_the_code() -> None:
    shown = re.search(r"^\| package \|.*\n(?:\|.*\n)+", PAGE.read_text(encoding="utf-8"), re.MULTILINE)

    assert shown
    assert shown[0] == fresh_debian.table()


def test_every_package_of_an_install_list_is_in_the_table() -> None:
    assert set(debian.PROGRAMS) == {*debian.NODE, *debian.DOCKER, *debian.PROMETHEUS, *debian.BROWSER}
    assert set(debian.BROUGHT_ALONG) <= set(debian.PROGRAMS)
    # what brings another is itself missed, or belongs to every machine
    assert not {*debian.BROUGHT_ALONG.values()} & set(debian.BROUGHT_ALONG)


def test_the_readme_names_what_a_new_machine_lacks() -> None:
    (command,) = re.findall(
        r"`apt-get update && apt-get install -y ([^`]+)`", (ROOT / "README.md").read_text()
    )

    assert {"git", "make", "python3-venv"} == set(command.split())


def test_continuous_integration_runs_it_where_real_parts_are_required() -> None:
    listed = subprocess.run(
        [ROOT / ".ci" / "run", "--list"], capture_output=True, text=True, check=True
    ).stdout
    source = (ROOT / "tests" / "support" / "ci" / "steps.py").read_text()

    assert re.search(r"^fresh-machine .*make fresh-machine-test$", listed, re.MULTILINE)
    assert '("fresh-machine-test", "TOOLCRIB_REQUIRE_REAL=1")' in source


def test_without_root_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)

    assert freshroot.lacking()[0] == (
        "it needs root (this is user 1000): sudo make fresh-machine-test, or a virtual machine"
    )


@pytest.fixture
def no_namespaces(tmp_path: Path) -> dict[str, str]:
    """The environment of a root who may not make namespaces, as in a container."""
    (tmp_path / "unshare").write_text(
        "#!/bin/sh\necho 'unshare failed: Operation not permitted' >&2; exit 1\n"
    )
    (tmp_path / "unshare").chmod(0o755)
    (tmp_path / "sitecustomize.py").write_text("import os\nos.geteuid = lambda: 0\n")
    return {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(tmp_path)}


@pytest.mark.parametrize(("required", "status", "outcome"), [("", 0, "4 skipped"), ("1", 1, "4 errors")])
def test_without_namespaces_it_says_so_and_fails_where_real_parts_are_required(
    no_namespaces: dict[str, str], required: str, status: int, outcome: str
) -> None:
    command = [sys.executable, "-m", "pytest", "-m", "fresh", "-p", "no:cacheprovider", "tests/fresh"]
    environment = {**no_namespaces, "TOOLCRIB_REQUIRE_REAL": required}
    done = subprocess.run(
        [*command, "-k", "named_in_the_table"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.returncode == status, done.stdout
    assert outcome in done.stdout
    assert "root may not make namespaces here: in a container, it has to be a privileged one" in done.stdout


def test_it_is_no_part_of_a_run_that_does_not_ask_for_it() -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--collect-only",
        "-p",
        "no:cacheprovider",
        "tests/fresh",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)

    assert "deselected" in done.stdout
    assert "::" not in done.stdout


def test_the_settings_of_package_clients_are_lent_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wheels, certificates = tmp_path / "wheels", tmp_path / "own.pem"
    wheels.mkdir()
    certificates.write_text("certificates")
    for name in os.environ:
        monkeypatch.delenv(name)
    given = {
        "PIP_FIND_LINKS": f"file://{wheels}", "SSL_CERT_FILE": str(certificates), "https_proxy": "http://proxy:3128/srv",
        "PIP_CACHE_DIR": "/cache", "UV_CACHE_DIR": "/cache", "GOPATH": "/go", "SECRET": "x", "HOME": str(tmp_path),
        "PATH": os.defpath,
    }  # fmt: skip
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(freshroot, "_servers", lambda: ([], {}))

    lent = freshroot._lent(tmp_path / "base")

    own = {"PATH", "HOME", "LANG", "TERM"}
    assert set(lent["environment"]) - own == {"PIP_FIND_LINKS", "SSL_CERT_FILE", "https_proxy"}
    assert lent["environment"]["HOME"] != str(tmp_path)
    assert [str(wheels), str(wheels), True] in lent["mounts"]
    assert [str(certificates), str(certificates)] in lent["files"]
    assert not [mount for mount in lent["mounts"] if mount[0] == "/srv"]


def test_of_apts_settings_only_those_of_the_network_are_lent() -> None:
    lines = ['Acquire::http::Proxy "http://p";', 'Acquire::GzipIndexes "true";', 'Acquire::Check-Date "false";',
             'DPkg::Post-Invoke:: "touch /x";', 'Acquire::https::CaInfo "/c";']  # fmt: skip

    kept = [line.partition(" ")[0] for line in lines if freshroot._APT_NETWORK.match(line)]

    assert kept == ["Acquire::http::Proxy", "Acquire::Check-Date", "Acquire::https::CaInfo"]


@pytest.mark.parametrize("kept", [True, False], ids=["from the cache", "from outside"])
def test_the_built_servers_are_shown_where_the_build_looks_for_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kept: bool
) -> None:
    from realparts import lookup
    from realparts.parts import PARTS

    def find(part: object, environ: object) -> lookup.Found:
        etcd = PARTS["etcd"]
        path = lookup.cache_path(etcd, os.environ) if kept else tmp_path / "etcd"
        return lookup.Found(etcd, path, "3.6.16", "the cache" if kept else "PATH")

    monkeypatch.setattr(lookup, "find", find)
    monkeypatch.setattr(freshroot, "SUITE", ("etcd",))

    ((source, target, read_only),), settings = freshroot._servers()

    assert read_only is True
    if kept:
        assert Path(target) == lookup.cache_path(PARTS["etcd"], {"HOME": "/root"}).parent
        assert settings == {}
    else:
        assert (source, target) == (str(tmp_path / "etcd"), f"{settings['KUBEBUILDER_ASSETS']}/etcd")


def test_a_server_that_is_not_built_is_named_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)

    with pytest.raises(
        freshroot.FreshMachineError, match=r"kube-apiserver .* is not on this machine: `make build-tools`"
    ):
        freshroot._servers()


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("git") and not required(), reason="git is not on this machine")
def test_the_clone_is_of_head_without_what_is_not_committed(tmp_path: Path) -> None:
    freshroot._clone(tmp_path / "clone")

    def git(*words: str, folder: Path = ROOT) -> str:
        return subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True).stdout

    assert git("rev-parse", "HEAD", folder=tmp_path / "clone") == git("rev-parse", "HEAD")
    assert git("status", "--porcelain", folder=tmp_path / "clone") == ""


def test_the_base_is_kept_where_the_user_keeps_caches(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    assert freshroot.cache_folder() == tmp_path / "toolcrib" / "fresh"
