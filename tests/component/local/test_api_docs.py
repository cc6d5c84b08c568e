"""`/docs` of the local mode: the API's pages in a browser, from this machine alone."""

import gzip
import hashlib
import json
import re
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urljoin

import httpx
import pytest

from local_mode import HEIST, LocalMode
from realparts import debian
from realparts.required import require_packages
from toolcrib_cli.local import api_docs

ASSETS = Path(api_docs.__file__).parent / "assets"
PUBLISHED = {
    "swagger-ui-bundle.js.gz": "e6a898692f2d768e807c3ba4626068a69a2c5dd960dd6c76f3e4d3a3de180af2",
    "swagger-ui.css.gz": "5ed08757e53da3e026d6cbecc61fe5d43585c9560b302d534ad56692519a273d",
}
"""SHA-256 of the files of npm's swagger-ui-dist 5.35.0 (docs/decisions/0070-api-pages.md)."""


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalMode]:
    with LocalMode(tmp_path_factory.mktemp("docs"), HEIST) as made:
        yield made


class _Named(HTMLParser):
    """Every address that a page names."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if name in ("src", "href") and value]


def get(local: LocalMode, path: str, **headers: str) -> httpx.Response:
    return httpx.get(urljoin(local.url, path), headers=headers, trust_env=False, timeout=30)


def test_the_shipped_files_are_those_that_were_published() -> None:
    found = {n: hashlib.sha256(gzip.decompress((ASSETS / n).read_bytes())).hexdigest() for n in PUBLISHED}

    assert found == PUBLISHED
    assert (ASSETS / "LICENSE.swagger-ui").is_file()


def test_every_address_that_the_page_names_is_its_own_and_answers(local: LocalMode) -> None:
    page = get(local, "/docs")
    reader = _Named()
    reader.feed(page.text)
    scripts = re.findall(r'url: "([^"]+)"', get(local, "/docs/start.js").text)
    wanted = [a for a in (*reader.found, *scripts) if not a.startswith("data:")]

    assert page.status_code == 200
    assert len(wanted) == 5
    assert all(a.startswith("/") and not a.startswith("//") for a in wanted)
    assert [get(local, a).status_code for a in wanted] == [200] * 5


def test_the_page_may_load_nothing_from_elsewhere_and_run_nothing_inline(local: LocalMode) -> None:
    policy = get(local, "/docs").headers["content-security-policy"]

    assert policy.startswith("default-src 'none'; script-src 'self';")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "*" not in policy


def test_files_are_the_same_with_and_without_compression(local: LocalMode) -> None:
    packed = get(local, "/docs/swagger-ui.css", **{"accept-encoding": "gzip"})
    plain = get(local, "/docs/swagger-ui.css", **{"accept-encoding": "identity"})

    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert packed.content == plain.content
    assert hashlib.sha256(plain.content).hexdigest() == PUBLISHED["swagger-ui.css.gz"]


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", {"host": "evil.example"}, 421),
        ("GET", {"origin": "https://evil.example"}, 403),
        ("POST", {}, 405),
        ("HEAD", {}, 200),
    ],
    ids=["another host", "another origin", "a post", "a head"],
)
def test_the_page_is_for_this_host_and_for_reading(
    method: str, headers: dict[str, str], status: int, local: LocalMode
) -> None:
    answer = httpx.request(method, f"{local.url}/docs", headers=headers, trust_env=False)

    assert answer.status_code == status
    assert method != "HEAD" or answer.content == b""


def test_up_says_where_the_page_is(local: LocalMode) -> None:
    assert f"{local.url}/docs" in local.output


@pytest.mark.node  # the step that installs packages of Debian
def test_a_browser_shows_every_route_and_asks_nobody_else(local: LocalMode, tmp_path: Path) -> None:
    require_packages(*debian.BROWSER)
    net_log = tmp_path / "net.json"
    argv = [
        "chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
        f"--user-data-dir={tmp_path / 'profile'}", f"--log-net-log={net_log}", "--enable-logging=stderr",
        "--virtual-time-budget=20000", "--timeout=60000", "--dump-dom", f"{local.url}/docs",
    ]  # fmt: skip
    done = subprocess.run(argv, capture_output=True, text=True, timeout=180, check=False)
    dom = done.stdout

    routes = set(re.findall(r'data-path="([^"]+)"', dom))
    assert {"/v1/call", "/v1/search", "/v1/tools", "/oauth/token"} <= routes, done.stderr[-2000:]
    assert "Content Security Policy" not in done.stderr, done.stderr[-2000:]
    asked = set(re.findall(r'"url":"(https?://[^"]+)"', net_log.read_text(encoding="utf-8")))
    page = {url for url in asked if url.startswith(local.url)}
    assert {url.removeprefix(local.url) for url in page} >= {"/docs", "/openapi.json", "/docs/swagger-ui.css"}
    assert _by_the_page(net_log, local.url) == set()


def _by_the_page(net_log: Path, url: str) -> set[str]:
    """The requests to others that our page is the initiator of; the browser makes some of its own."""
    foreign = set()
    for event in json.loads(net_log.read_text(encoding="utf-8"))["events"]:
        told = event.get("params", {})
        initiator = str(told.get("initiator", ""))
        if initiator.startswith(url) and not str(told.get("url", url)).startswith((url, "data:", "blob:")):
            foreign.add(str(told["url"]))
    return foreign
