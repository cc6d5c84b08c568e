"""Requests and responses of docs/reference/http.md: files with a request, `###`, and what a real registry answered.

`$NAMES` in a request stand for what a reader has to fill in: tokens, secrets, digests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

_STREAM_BYTES = 200
_STEADY = (
    (re.compile(r"eyJ[\w-]+\.[\w-]+\.[\w-]+"), "eyJhbGciOiJFUzI1NiIs…"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)"), "2026-01-05T09:00:00Z"),
    (re.compile(r"(?<=sha256:)[0-9a-f]{64}"), "…"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"),
    (re.compile(r"http://127\.0\.0\.1:\d+"), "http://127.0.0.1:8765"),
    (re.compile(r'"port": \d+'), '"port": 8765'),
    (re.compile(r'"elapsed": [\d.]+'), '"elapsed": 0.004'),
    (re.compile(r'("(?:x|y|kid|uptime_seconds)": )("[^"]+"|[\d.]+)'), r'\1"…"'),
)
_SHOWN = ("content-type", "etag", "location", "www-authenticate")


@dataclass(frozen=True, slots=True)
class HttpExample:
    """One file: a request, and the response as recorded (empty: none yet)."""

    file: Path
    method: str
    path: str
    headers: Mapping[str, str]
    body: str
    response: str

    @classmethod
    def read(cls, file: Path) -> HttpExample:
        """Read a file."""
        request, _, response = file.read_text(encoding="utf-8").partition("\n###\n")
        head, _, body = request.partition("\n\n")
        first, *lines = head.splitlines()
        method, path = first.split(" ", 1)
        headers = dict(line.split(": ", 1) for line in lines)
        return cls(file, method, path, headers, body.strip(), response.strip("\n"))

    def send(self, url: str, values: Mapping[str, str]) -> str:
        """Send it, and write the answer as a file holds it; of a stream, its beginning."""

        def filled(text: str) -> str:
            return re.sub(r"\$([A-Z_]+)", lambda found: values[found.group(1)], text)

        headers = {name: filled(value) for name, value in self.headers.items()}
        asked = {"headers": headers, "content": filled(self.body).encode() or None}
        with httpx.stream(self.method, url + self.path, timeout=60, trust_env=False, **asked) as answer:  # type: ignore[arg-type]
            if answer.headers.get("content-type", "").startswith("text/event-stream"):
                read = b""
                for part in answer.iter_raw():
                    read += part
                    if b"\n\n" in read or len(read) > _STREAM_BYTES:
                        break
                text = read.decode()
            else:
                answer.read()
                text = answer.text
        return written(answer, text)

    def write(self, response: str) -> None:
        """Put a response into the file."""
        request = self.file.read_text(encoding="utf-8").partition("\n###\n")[0]
        self.file.write_text(f"{request}\n###\n{response}\n", encoding="utf-8")


def written(answer: httpx.Response, text: str) -> str:
    """A response as text: status, the headers that matter, the body."""
    lines = [f"{answer.status_code} {answer.reason_phrase}"]
    lines += [f"{n.title()}: {answer.headers[n]}" for n in _SHOWN if n in answer.headers]
    if text.startswith(("{", "[")):
        text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    made = "\n".join(lines) + (f"\n\n{text.rstrip()}" if text.strip() else "")
    for pattern, shown in _STEADY:
        made = pattern.sub(shown, made)
    return made


def shape(response: str) -> Any:
    """Status and structure of a response: names and kinds of values, of a list those of its first item."""
    head, _, body = response.partition("\n\n")
    status = head.splitlines()[0]
    try:
        return status, _shape(json.loads(body))
    except ValueError:
        return status, bool(body)


def _shape(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _shape(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_shape(each) for each in value[:1]]
    return (
        "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__
    )
