"""Logs of the services, one form for all: one JSON object a line, or one line of text for people.

A line has `ts`, `level`, `logger`, `message`, `request_id` and `trace_id`/`span_id` where there are any, `exception`,
and the fields of `extra=about(…)` or of `extra=` itself; a message that is a dict is merged in. Nothing from outside
can end a line or move a terminal's cursor. Bearer tokens, JSON web tokens and queries of URLs are cut out here, in
case a library's message holds one.
"""

from __future__ import annotations

import json
import logging
import math
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TextIO

from toolcrib import entropy
from toolcrib.telemetry.batch import Batch
from toolcrib.text import escape

FORMAT, LEVEL = "TOOLCRIB_LOG_FORMAT", "TOOLCRIB_LOG_LEVEL"
"""Environment variables: json or text; debug, info, warning or error."""
FORMS = ("json", "text")
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
EVERY = 60.0
"""Seconds between two lines about one trouble that lasts."""

request_id: ContextVar[str] = ContextVar("toolcrib_request_id", default="")
"""The request that is worked on; every line logged meanwhile carries it."""

_SANE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_SECRETS = re.compile(
    # with a digit, a sign or an inner capital in it: "basic authentication" is no credential
    r"(?P<scheme>\b(?:Bearer|Basic)(?:\s|\\[nrt]|\\x[0-9a-f]{2}|%20)++)(?=[A-Za-z]*[0-9._~+/=-]|(?-i:[A-Za-z]*[a-z][A-Z]))[A-Za-z0-9._~+/=-]{8,}"
    r"|\beyJ[A-Za-z0-9_-]{8,1024}+\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?",
    re.IGNORECASE,
)
_URLS = re.compile(
    # all of it at once, possessively: text of any length costs its length
    r"://(?P<rest>(?:[^\s\"'\\?]++|\\u[0-9a-f]{4})++)(?P<query>\?[^\s\"'\\)>\]]*+)?",
    re.IGNORECASE,
)
_AUTHORITY = re.compile(r"[^/?#]*")
_PORT = re.compile(r"\[.*|[^:]*(?::[0-9]*)?")
"""An authority without a user: a password may hold a slash, but a port does not look like one."""
# what a LogRecord has by itself; anything else came with `extra=`
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "fields", "color_message"}
# they log URLs with their queries, or every step they take
_QUIET = {"httpx": 30, "httpx2": 30, "httpcore": 30, "httpcore2": 30, "openai": 30, "urllib3": 40, "asyncio": 30,
          "kopf": 40, "kubernetes": 30, "weaviate": 30}  # fmt: skip
_ENCODER = json.JSONEncoder(default=str)
_QUOTED = json.encoder.encode_basestring_ascii
_SHOWN = (str, int, float, bool, list, tuple, dict, type(None))


class _Hook:
    """Where trace ids come from, once tracing is on."""

    ids: Callable[[], tuple[str, str] | None] | None = None


hook = _Hook()


class _Output:
    """Where `configure` sends the lines."""

    handler: _JsonHandler | None = None


_output = _Output()


def new_request_id(prefix: str = "") -> str:
    """A fresh id: 16 hexadecimal digits after the prefix."""
    return prefix + entropy.piece()[:8].hex()


def is_sane_request_id(text: str) -> bool:
    """Whether an id from outside may be taken over: 1 to 64 letters, digits, dots, hyphens, underscores."""
    return _SANE_ID.fullmatch(text) is not None


def about(**fields: Any) -> dict[str, dict[str, Any]]:
    """`extra=about(kind="Tool", namespace="heist", name="hammer")`; `name` by itself is taken in a log record."""
    return {"fields": fields}


def about_object(kind: str, key: str, **fields: Any) -> dict[str, dict[str, Any]]:
    """The same for an object by its key, `namespace/name` or `name`."""
    namespace, _, name = key.rpartition("/")
    return {"fields": {"kind": kind, "namespace": namespace or None, "name": name, **fields}}


@contextmanager
def working_on(request: str) -> Iterator[str]:
    """Lines logged inside carry this request id, and so do requests that are sent."""
    token = request_id.set(request)
    try:
        yield request
    finally:
        request_id.reset(token)


def scrubbed(text: str) -> str:
    """`text` without what looks like a credential or the query of a URL."""
    low = text.lower()
    # the pattern costs as much as the whole line; few lines hold any of these
    if not ("bearer" in low or "basic" in low or "eyj" in low or "://" in low):
        return text
    return _SECRETS.sub(lambda m: (m["scheme"] or "") + "[cut]", _URLS.sub(_cut, text))


def _cut(found: re.Match[str]) -> str:
    # several URLs may follow each other without a space
    *before, last = found["rest"].split("://")
    query = found["query"] or ""
    if "@" in query and "@" not in last and not _PORT.fullmatch(_authority(last)):
        last, query = last + query, ""
    shown = "".join("://" + _without_user(piece) for piece in [*before, last])
    return shown + ("?[cut]" if len(query) > 1 else query)


def _without_user(piece: str) -> str:
    """What follows `://`, without the user; its password may hold `@`, or a slash that nobody escaped."""
    authority = _authority(piece)
    if "@" in authority:
        return "[cut]" + piece[authority.rindex("@") :]
    if "@" in piece and not _PORT.fullmatch(authority):
        return "[cut]" + piece[piece.rindex("@") :]
    return piece


def _authority(piece: str) -> str:
    found = _AUTHORITY.match(piece)
    return found[0] if found else ""


class JsonLines(logging.Formatter):
    """One JSON object a line, ASCII only."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        return scrubbed(_ENCODER.encode(_line(self, record)))


class TextLines(logging.Formatter):
    """For people: time, level, logger, message, then `field=value`; a traceback follows, indented."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and one for each of a traceback's."""
        line = _line(self, record)
        head = f"{line.pop('ts')[11:19]} {line.pop('level').upper():<7} {line.pop('logger')}: {line.pop('message', '')}"
        trace = line.pop("exception", "")
        parts = [head, *(f"{k}={v}" for k, v in line.items() if v not in (None, ""))]
        shown = escape(" ".join(parts))
        # indented, so that a line of it cannot pass for a line of the log
        return scrubbed("\n".join([shown, *(f"    | {escape(part)}" for part in trace.splitlines())]))


_Said = tuple[float, str, Mapping[str, str | float | None]]
"""When, what `_source` makes of who said it, and the message."""


class _JsonHandler(logging.StreamHandler[TextIO]):
    """Writes lines of JSON; a flat message may come without a record, and is written a moment later."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self.setFormatter(JsonLines())
        self._second, self._prefix = -1, ""
        self._batch = Batch[_Said](self._write, self.lock)

    def say(self, logger: str, level: int, fields: Mapping[str, str | float | None]) -> None:
        """Write what `format` makes of a record with this message, before the next record."""
        self.acquire()
        try:
            self._batch.add((time.time(), _source(logger, level), fields))
        finally:
            self.release()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        self._batch.flush()
        super().emit(record)

    def flush(self) -> None:
        """Write what waits."""
        self.acquire()
        try:
            self._batch.flush()
            super().flush()
        finally:
            self.release()

    def _write(self, said: list[_Said]) -> None:
        if getattr(self.stream, "closed", False):  # since they were said
            return
        try:
            self.stream.write("".join(map(self._line, said)))
            self.stream.flush()
        except Exception:  # a stream that is full or broken: `logging` has its way with that
            self.handleError(logging.makeLogRecord({"msg": said[0][2]}))

    def _line(self, said: _Said) -> str:
        now, source, fields = said
        parts = [source]
        for key, value in fields.items():
            text = _QUOTED(value) if type(value) is str else "null" if value is None else repr(value)
            parts.append(f'"{key}": {text}')
        second = math.floor(now)
        if second != self._second:
            made = datetime.fromtimestamp(second, UTC).isoformat()
            self._second, self._prefix = second, made.removesuffix("+00:00")
        moment = f"{self._prefix}.{int((now - second) * 1000):03d}+00:00"
        return scrubbed(f'{{"ts": "{moment}", {", ".join(parts)}}}') + self.terminator


@lru_cache(maxsize=64)
def _source(logger: str, level: int) -> str:
    return f'"level": "{logging.getLevelName(level).lower()}", "logger": {_QUOTED(logger)}'


def say(logger: logging.Logger, level: int, fields: dict[str, str | float | None]) -> None:
    """Log a message of texts, finite numbers and None, with its own `request_id`, as `logger.log(level, fields)` would.

    Where nobody but our own handler sees it, no record is made: that costs more than all the rest of the line. On an event
    loop it is written a few milliseconds later (`batch`).
    """
    if not logger.isEnabledFor(level):
        return
    handler = _output.handler
    if handler is not None and hook.ids is None and _is_alone(handler, logger):
        handler.say(logger.name, level, fields)
        return
    # `log` would look for who called it, which is here
    logger.handle(logger.makeRecord(logger.name, level, __file__, 0, fields, (), None))


def _is_alone(handler: logging.Handler, logger: logging.Logger) -> bool:
    """Whether what `logger` logs goes to `handler` alone, and nothing looks at it on the way."""
    if logger.filters or logger.disabled or handler.filters or handler.level:
        return False
    each: logging.Logger | None = logger
    while each is not None and each.parent is not None:
        if each.handlers or not each.propagate:
            return False
        each = each.parent
    return each is not None and each.handlers == [handler]


def _line(formatter: logging.Formatter, record: logging.LogRecord) -> dict[str, Any]:
    line: dict[str, Any] = {
        "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
        "level": record.levelname.lower(),
        "logger": record.name,
    }
    if isinstance(record.msg, dict):
        line.update(record.msg)
    else:
        line["message"] = record.getMessage()
    given: Mapping[str, Any] = getattr(record, "fields", None) or {}
    # in this order: most records have nothing else, which costs less to see than to subtract
    for key in () if vars(record).keys() <= _OWN else sorted(vars(record).keys() - _OWN):
        if isinstance(value := getattr(record, key), _SHOWN):
            line.setdefault(key, value)
    for key, value in given.items():
        line.setdefault(key, value)
    if (current := request_id.get()) and "request_id" not in line:
        line["request_id"] = current
    if hook.ids is not None and (ids := hook.ids()) is not None:
        line["trace_id"], line["span_id"] = ids
    if record.exc_info:
        line["exception"] = formatter.formatException(record.exc_info)
    return line


def configure(
    environ: Mapping[str, str],
    *,
    level: str | None = None,
    form: str | None = None,
    stream: TextIO | None = None,
) -> None:
    """Send everything to standard error in one form.

    Args:
        environ: its `TOOLCRIB_LOG_LEVEL` and `TOOLCRIB_LOG_FORMAT` count where the arguments are None.
        level: one of `LEVELS`, in any case; else info.
        form: json or text; else text where standard error is a terminal, json elsewhere.
        stream: instead of standard error.

    Raises:
        ValueError: a level or form that there is not; the message names the variable.
    """
    stream = stream or sys.stderr
    level = (level or environ.get(LEVEL) or "INFO").upper()
    form = (form or environ.get(FORMAT) or ("text" if stream.isatty() else "json")).lower()
    if level not in LEVELS:
        raise ValueError(f"{LEVEL}: {', '.join(LEVELS).lower()}, not {level.lower()!r}")
    if form not in FORMS:
        raise ValueError(f"{FORMAT}: {' or '.join(FORMS)}, not {form!r}")
    # neither form shows them
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    if _output.handler is not None:
        with suppress(OSError, ValueError):  # its stream may be closed, as `logging.shutdown` knows
            _output.handler.flush()
    handler: logging.Handler
    if form == "json":
        handler = _output.handler = _JsonHandler(stream)
    else:
        handler, _output.handler = logging.StreamHandler(stream), None
        handler.setFormatter(TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name, least in _QUIET.items():
        logging.getLogger(name).setLevel(max(least, root.level))


class Trouble:
    """Something that fails again and again: said when it begins, once a minute with a count, and when it is over."""

    def __init__(
        self, log: logging.Logger, *, every: float = EVERY, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log, self._every, self._clock = log, every, clock
        self._since: float | None = None
        self._told = 0.0
        self._count = 0

    def failed(
        self,
        message: str,
        *arguments: object,
        level: int = logging.WARNING,
        extra: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """It failed (again); `message` and the rest are as in `logging`."""
        now = self._clock()
        self._count += 1
        if self._since is None:
            self._since = now
        elif now - self._told < self._every:
            return
        self._told = now
        fields = dict((extra or {}).get("fields", {}))
        if self._count > 1:
            fields |= {"failures": self._count, "seconds": round(now - self._since, 1)}
        self._log.log(level, message, *arguments, extra={"fields": fields})

    def over(
        self, message: str, *arguments: object, extra: Mapping[str, Mapping[str, Any]] | None = None
    ) -> None:
        """It went well; said at info where it had failed before."""
        if self._since is None:
            return
        fields = dict((extra or {}).get("fields", {}))
        fields |= {"failures": self._count, "seconds": round(self._clock() - self._since, 1)}
        self._since, self._count = None, 0
        self._log.info(message, *arguments, extra={"fields": fields})
