"""Where the local mode's tools may call: options of `up`, `hosts.yaml` of the data folder, and the example tools.

A folder of manifests has no say in it: a cloned folder must not open a way out of this machine.

    allow: [api.example.com, "*.example.org:8443"]
    backends:
      team-a/notes: 127.0.0.1:9000
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from toolcrib.errors import Finding
from toolcrib_cli import yaml_documents
from toolcrib_cli.manifests import ManifestProblem
from toolcrib_registry.outbound.guard import EgressPolicy

FILE = "hosts.yaml"
EXAMPLE_SERVICE = "example-tools"
MAX_FILE = 1 << 20
_COMMON_PORTS = (80, 443)


@dataclass(frozen=True, slots=True)
class Hosts:
    """Hosts that `url:` backends may name, and where Services are: `namespace/service` → `host:port`."""

    allow: tuple[str, ...] = ()
    backends: Mapping[str, str] = field(default_factory=dict)

    def over(self, other: Hosts) -> Hosts:
        """Both together; of a Service that both name, this one's place."""
        allow = tuple(dict.fromkeys((*self.allow, *other.allow)))
        return Hosts(allow, {**other.backends, **self.backends})


class HostsInvalid(Exception):
    """A hosts file that is not used; `.problems` name each line."""

    def __init__(self, problems: Iterable[ManifestProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(map(str, self.problems)))


class HostsFile:
    """The hosts file of a data folder; while it is broken, what it said before holds."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.hosts = Hosts()
        self._stamp: tuple[int, ...] | None = None

    def look(self) -> bool:
        """Read the file if it is another one than at the last look; whether what it says has changed.

        Raises:
            HostsInvalid: it is broken; the former hosts stay. The same file is not complained about twice.
        """
        stamp = _stamp(self.file)
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        before, self.hosts = self.hosts, Hosts() if stamp is None else read(self.file)
        return before != self.hosts


@dataclass(frozen=True, slots=True)
class LocalHosts:
    """What is open: by options first, then by the file; the example tools' Services are theirs unless said otherwise."""

    given: Hosts
    file: HostsFile
    example_tools: str
    """`host:port`."""

    def effective(self, services: Iterable[str]) -> Hosts:
        """With these Services (`namespace/name`) declared."""
        examples = {s: self.example_tools for s in services if s.endswith(f"/{EXAMPLE_SERVICE}")}
        return self.given.over(self.file.hosts.over(Hosts(backends=examples)))


class LocalRemedies:
    """What to do in the local mode about a backend that may not be called, by the options of `command`."""

    def __init__(self, command: str = "toolcrib up") -> None:
        self._command = command

    def host(self, host: str, port: int) -> str:
        """By option, or by the hosts file."""
        named = f"[{host}]" if ":" in host else host
        place = named if port in _COMMON_PORTS else f"{named}:{port}"
        return (
            f"To allow it, run `{self._command}` with --allow-host {place}, or add it to `allow` in {FILE} of the"
            " data folder."
        )

    def service(self, namespace: str, name: str | None) -> str:
        """By option, or by the hosts file."""
        service = f"{namespace}/{name}"
        return (
            f"Run `{self._command}` with --backend {service}=host:port, or add `{service}: host:port` to `backends` in"
            f" {FILE} of the data folder."
        )

    def address(self, namespace: str, name: str) -> str:
        """The same: callers and authors are one here."""
        return self.service(namespace, name)


def read(file: Path) -> Hosts:
    """What a hosts file says.

    Raises:
        HostsInvalid: it cannot be read, others may write it, or something in it is wrong.
    """
    try:
        text = _private_text(file)
        yaml_documents.check_bounds(text)
        found = list(yaml_documents.nodes(text))
        if not found:
            return Hosts()
        body = yaml_documents.value(found[0])
        hosts, problems = _checked(body)
        if len(found) > 1:
            at = found[1].start_mark.line + 1
            raise HostsInvalid(
                [ManifestProblem(file, at, Finding("", "the file has more than one document"))]
            )
    except OSError as error:
        linked = error.errno == errno.ELOOP
        why = (
            "is a symbolic link: put the file itself there"
            if linked
            else f"cannot be read: {error.strerror or error}"
        )
        raise _broken(file, why) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = " ".join(str(part) for part in (error.context, error.problem) if part)
        raise _broken(file, f"not valid YAML: {what}", mark.line + 1 if mark else 0) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise _broken(file, str(error).splitlines()[0]) from error
    if problems:
        raise HostsInvalid(
            ManifestProblem(file, yaml_documents.line_of(found[0], finding.field), finding)
            for finding in problems
        )
    return hosts


def _private_text(file: Path) -> str:
    """The file, if nobody else may write it.

    Raises:
        OSError, ValueError: it cannot be read or is not to be trusted.
    """
    # a link might lead into a cloned folder
    handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as opened:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("not a regular file; replace it by one (no link)")
        if found.st_mode & 0o022 or found.st_uid not in (os.geteuid(), 0):
            raise ValueError(
                f"others may write this file (mode {stat.S_IMODE(found.st_mode):o}), and it opens hosts: chmod 600 it"
            )
        content = opened.read(MAX_FILE + 1)
    if len(content) > MAX_FILE:
        raise ValueError(f"larger than {MAX_FILE >> 20} MiB")
    return content.decode("utf-8")


def _checked(body: Any) -> tuple[Hosts, list[Finding]]:
    if not isinstance(body, dict):
        return Hosts(), [Finding("", "the file is a mapping of `allow` and `backends`")]
    problems = [
        Finding(key, "unknown field", "the fields are allow and backends")
        for key in body
        if key not in ("allow", "backends")
    ]
    allow, backends = body.get("allow") or [], body.get("backends") or {}
    if not isinstance(allow, list):
        problems.append(Finding("allow", "must be a list of hosts", "allow: [api.example.com]"))
    else:
        problems += _wrong_hosts(allow)
    if not isinstance(backends, dict):
        problems.append(
            Finding(
                "backends", "must be a mapping of Services", "team-a/notes: 127.0.0.1:9000, on a line each"
            )
        )
    else:
        problems += _wrong_backends(backends)
    return (Hosts(), problems) if problems else (Hosts(tuple(allow), dict(backends)), [])


def _wrong_hosts(allow: list[Any]) -> Iterator[Finding]:
    for index, entry in enumerate(allow):
        if not isinstance(entry, str):
            yield Finding(f"allow[{index}]", f"must be a host, not {entry!r}")
        elif why := problem(Hosts(allow=(entry,))):
            yield Finding(f"allow[{index}]", why)


def _wrong_backends(backends: dict[str, Any]) -> Iterator[Finding]:
    for service, place in backends.items():
        if not isinstance(place, str):
            yield Finding(f"backends.{service}", f"must be host:port, not {place!r}")
        elif why := problem(Hosts(backends={service: place})):
            yield Finding(f"backends.{service}", why)


def problem(hosts: Hosts) -> str:
    """What is wrong with an entry; empty: nothing."""
    try:
        EgressPolicy(allow=hosts.allow, backends=hosts.backends)
    except ValueError as error:
        return str(error)
    return ""


def _broken(file: Path, why: str, line: int = 0) -> HostsInvalid:
    return HostsInvalid([ManifestProblem(file, line, Finding("", why))])


def _stamp(file: Path) -> tuple[int, ...] | None:
    try:
        found = file.lstat()
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)
