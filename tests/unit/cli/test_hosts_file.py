"""The hosts file of the local mode: what it opens, who may write it, and what is said of a broken one."""

import os
from pathlib import Path

import pytest

from toolcrib_cli.local.hosts import Hosts, HostsFile, HostsInvalid, LocalHosts, read


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "hosts.yaml"


def write(file: Path, text: str) -> Path:
    file.write_text(text)
    file.chmod(0o600)
    return file


def test_a_file_names_hosts_and_where_services_are(file: Path) -> None:
    write(file, 'allow: [api.example.com, "*.example.org:8443"]\nbackends:\n  team-a/notes: 127.0.0.1:9000\n')
    assert read(file) == Hosts(("api.example.com", "*.example.org:8443"), {"team-a/notes": "127.0.0.1:9000"})


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "allow:\nbackends:\n", "{}\n"])
def test_an_empty_file_opens_nothing(file: Path, text: str) -> None:
    assert read(write(file, text)) == Hosts()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("allow:\n  - api.example.com\n  - https://example.com\n", ":3: allow[1]: "),
        ("allow: api.example.com\n", ":1: allow: must be a list of hosts"),
        ("allow: [1]\n", ":1: allow[0]: must be a host, not 1"),
        (
            "\nbackends:\n  notes: 127.0.0.1:9000\n",
            ":3: backends.notes: backend 'notes' is not namespace/service",
        ),
        ("backends:\n  a/notes: 9000\n", ":2: backends.a/notes: must be host:port, not 9000"),
        ("backends:\n  a/notes: localhost\n", ":2: backends.a/notes: "),
        ("backends: [a]\n", ":1: backends: must be a mapping"),
        ("allow: []\nalow: []\n", ":2: alow: unknown field (the fields are allow and backends)"),
        ("allow: []\nallow: []\n", ":2: not valid YAML: duplicate key 'allow'"),
        ("allow: [\n", ":2: not valid YAML: "),
        ("- allow\n", ":1: the file is a mapping"),
        ("allow: []\n---\nallow: []\n", ":3: the file has more than one document"),
    ],
)
def test_a_mistake_is_named_with_its_line(file: Path, text: str, said: str) -> None:
    with pytest.raises(HostsInvalid) as refused:
        read(write(file, text))
    assert f"{file}{said}" in str(refused.value)


@pytest.mark.guarantee
@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_is_refused(file: Path, mode: int) -> None:
    write(file, "allow: [api.example.com]\n").chmod(mode)
    with pytest.raises(HostsInvalid, match="chmod 600"):
        read(file)


@pytest.mark.guarantee
def test_a_link_and_what_is_no_file_are_refused(file: Path, tmp_path: Path) -> None:
    elsewhere = write(tmp_path / "cloned.yaml", "allow: [api.example.com]\n")
    file.symlink_to(elsewhere)
    with pytest.raises(HostsInvalid, match="is a symbolic link"):
        read(file)
    file.unlink()
    os.mkfifo(file, 0o600)
    with pytest.raises(HostsInvalid, match="not a regular file"):
        read(file)


def test_a_broken_edit_is_said_once_and_the_former_hosts_stay(file: Path) -> None:
    hosts = HostsFile(write(file, "allow: [api.example.com]\n"))
    assert hosts.look()
    assert not hosts.look(), "the same file"
    write(file, "allow: [not a host]\n")
    with pytest.raises(HostsInvalid):
        hosts.look()
    assert not hosts.look()
    assert hosts.hosts.allow == ("api.example.com",)
    write(file, "allow: [other.example.com]\n")
    assert hosts.look()
    assert hosts.hosts.allow == ("other.example.com",)
    file.unlink()
    assert hosts.look()
    assert hosts.hosts == Hosts()


def test_options_go_before_the_file_and_the_file_before_the_example_tools(file: Path) -> None:
    hosts = HostsFile(
        write(file, "allow: [b.example]\nbackends: {a/x: '127.0.0.1:2', a/example-tools: '127.0.0.1:2'}\n")
    )
    hosts.look()
    local = LocalHosts(Hosts(("a.example",), {"a/x": "127.0.0.1:1"}), hosts, "127.0.0.1:3")
    found = local.effective(["a/example-tools", "b/example-tools", "b/other"])
    assert found.allow == ("a.example", "b.example")
    assert found.backends == {
        "a/x": "127.0.0.1:1",
        "a/example-tools": "127.0.0.1:2",
        "b/example-tools": "127.0.0.1:3",
    }
