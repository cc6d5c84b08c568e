"""A real Prometheus on loopback: found, taken from Debian's package without installing it, started, asked.

    with Prometheus(targets={"registry": ["127.0.0.1:8081"]}, rules=[Path("alerts.yaml")]) as prometheus:
        prometheus.wait_up()
        prometheus.query("up")

Standard library only: the build script imports this.
"""

import contextlib
import functools
import json
import os
import re
import shutil
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from realparts import lookup, processes, unpacked

MINIMUM = (2, 40)
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
PROGRAMS = ("prometheus", "promtool")
_NOTHING_THERE = "prometheus and promtool are not on this machine"
_ADVICE = (
    "Put both on PATH (https://prometheus.io/download/ or `apt-get install prometheus`), "
    "or run `make build-tools` on Debian or Ubuntu, which unpacks the package into the cache."
)


class PrometheusMissingError(RuntimeError):
    """The programs are not here; the message says how to get them."""


@functools.cache
def path_of(program: str) -> Path:
    """`prometheus` or `promtool`, from PATH or the cache; never fetched here. Raises PrometheusMissingError."""
    lookup.refuse_in_quick_suite(program)
    found = find(program)
    if found is None:
        raise PrometheusMissingError(f"{_NOTHING_THERE}. {_ADVICE}")
    return found


def find(program: str) -> Path | None:
    """The program, new enough, from PATH or the cache; None if there is none."""
    on_path = shutil.which(program)
    if on_path and _version(Path(on_path)) >= MINIMUM:
        return Path(on_path).absolute()
    return unpacked.find("prometheus", program)


def provide() -> Path:
    """The folder or program that is there, else Debian's package unpacked into the cache.

    Raises PrometheusMissingError where there is no apt-get, no package or no network.
    """
    if all(find(program) for program in PROGRAMS):
        return path_of("prometheus")
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        raise PrometheusMissingError(f"{_NOTHING_THERE}, and there is no apt-get to fetch them. {_ADVICE}")
    cache = lookup.cache_folder(os.environ)
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=cache) as scratch:
        try:
            package = _download(Path(scratch))
            unpacked.quiet("dpkg", "-x", str(package), f"{scratch}/x")
        except unpacked.UnpackingError as error:
            raise PrometheusMissingError(f"{_NOTHING_THERE}: {error}. {_ADVICE}") from error
        version = package.name.split("_")[1].split("+")[0].split("-")[0]
        new = Path(scratch) / "new"
        new.mkdir()
        for program in PROGRAMS:
            shutil.move(f"{scratch}/x/usr/bin/{program}", new / program)
            lookup.write_checksum(new / program)
        target = cache / f"prometheus-{version}"
        if target.exists():
            target.rename(Path(scratch) / "old")
        with contextlib.suppress(FileExistsError, OSError):  # another run was first
            new.rename(target)
    path_of.cache_clear()
    return path_of("prometheus")


def _download(folder: Path) -> Path:
    """Debian's package, checked by apt against its signed lists."""
    command = ("apt-get", "download", "-qq", "prometheus")
    if unpacked.run(*command, cwd=folder).returncode != 0:
        unpacked.quiet("apt-get", "update", "-qq")  # on a fresh machine the lists are empty
        unpacked.quiet(*command, cwd=folder)
    return next(folder.glob("prometheus_*.deb"))


def _version(path: Path) -> tuple[int, ...]:
    done = unpacked.run(str(path), "--version")
    stated = re.search(r"version (\d+)\.(\d+)", done.stdout + done.stderr)
    return (int(stated[1]), int(stated[2])) if stated else (0, 0)


class Api:
    """The HTTP API of a Prometheus at `url`, wherever it runs."""

    def __init__(self, url: str) -> None:
        self.url = url

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The instant vector of an expression: `metric` (labels) and `value` ([time, text]) of each element.

        Raises ValueError with what Prometheus says about an expression that it refuses.
        """
        data = self._api("query", query=expression)
        if data["resultType"] == "scalar":
            return [{"metric": {}, "value": data["result"]}]
        found: list[dict[str, Any]] = data["result"]
        return found

    def value(self, expression: str) -> float | None:
        """The first element's value; None for an empty vector."""
        found = self.query(expression)
        return float(found[0]["value"][1]) if found else None

    def targets(self) -> list[dict[str, Any]]:
        """The active targets, each with `labels`, `health` and `lastError`."""
        found: list[dict[str, Any]] = self._api("targets", state="active")["activeTargets"]
        return found

    def rules(self) -> list[dict[str, Any]]:
        """Every rule of every group, each with `name`, `type`, `health`, `lastError`; alerts with `state`."""
        return [rule for group in self._api("rules")["groups"] for rule in group["rules"]]

    def wait_up(self, timeout: float = 60) -> None:
        """Wait until every target has been scraped. Raises TimeoutError with the targets' errors."""

        def up() -> bool:
            found = self.targets()
            return bool(found) and all(t["health"] == "up" for t in found)

        try:
            processes.wait_until(up, timeout, interval=0.1)
        except TimeoutError:
            errors = {t["scrapeUrl"]: t["lastError"] or t["health"] for t in self.targets()}
            raise TimeoutError(f"not all targets are up after {timeout:g} s: {errors}") from None

    def wait_rules(self, timeout: float = 60) -> None:
        """Wait until every rule has been evaluated once. Raises TimeoutError with the rules' errors."""

        def evaluated() -> bool:
            found = self.rules()
            return bool(found) and all(r["health"] == "ok" for r in found)

        try:
            processes.wait_until(evaluated, timeout, interval=0.1)
        except TimeoutError:
            errors = {
                r["name"]: r.get("lastError") or r["health"] for r in self.rules() if r["health"] != "ok"
            }
            raise TimeoutError(f"rules are not healthy after {timeout:g} s: {errors}") from None

    def _api(self, path: str, **query: str) -> Any:
        body = urllib.parse.urlencode(query)
        # the query in the address: /targets and /rules take no POST
        address = f"{self.url}/api/v1/{path}" + (f"?{body}" if body else "")
        try:
            with _DIRECT.open(address, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            told = json.loads(error.read() or b"{}")
            raise ValueError(f"{told.get('errorType')}: {told.get('error')} ({query})") from None


class Prometheus(Api, processes.Child):
    """A server with a fresh data folder; started by `with`, ended with it.

    Args:
        targets: job → `host:port` of what to scrape, over plain HTTP.
        config: a whole configuration (as a mapping, or a file) instead of `targets`.
        rules: rule files.
        interval: seconds between scrapes and between evaluations, where `targets` is used.
    """

    def __init__(
        self,
        *,
        targets: Mapping[str, Sequence[str]] | None = None,
        config: Mapping[str, Any] | Path | None = None,
        rules: Sequence[Path] = (),
        interval: float = 0.5,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="toolcrib-prometheus-")
        folder = Path(self._folder.name)
        self.port = processes.free_port()
        Api.__init__(self, f"http://127.0.0.1:{self.port}")
        if isinstance(config, Path):
            file = config
        else:
            file = folder / "prometheus.yaml"
            # JSON is YAML: nothing has to be installed to write it
            file.write_text(json.dumps(config or _config(targets or {}, rules, interval)))
        processes.Child.__init__(
            self,
            "prometheus",
            [
                path_of("prometheus"),
                f"--config.file={file}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
                "--storage.tsdb.retention.time=1d",
                "--log.level=warn",
            ],
            log=folder / "prometheus.log",
            env=processes.clean_environment(),
        )

    def __enter__(self) -> Self:
        self.start()
        try:
            self.wait_ready(self._ready, 60)
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._folder.cleanup()

    def _ready(self) -> bool:
        with contextlib.suppress(OSError), _DIRECT.open(f"{self.url}/-/ready", timeout=2) as answer:
            return bool(answer.status == 200)
        return False


def _config(targets: Mapping[str, Sequence[str]], rules: Sequence[Path], interval: float) -> dict[str, Any]:
    often = f"{int(interval * 1000)}ms"
    return {
        "global": {"scrape_interval": often, "scrape_timeout": often, "evaluation_interval": often},
        "rule_files": [str(path.absolute()) for path in rules],
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": list(found)}]} for job, found in targets.items()
        ],
    }
