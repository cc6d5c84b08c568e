"""The form of the services' logs, and what never gets into them."""

import asyncio
import io
import json
import logging
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest

from toolcrib.telemetry import logs

Write = Callable[..., str]


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    quiet = {name: logging.getLogger(name).level for name in logs._QUIET}
    outside = logs.request_id.set("")  # whatever an earlier test of this process was working on
    yield logging.getLogger("toolcrib.test")
    logs.request_id.reset(outside)
    for name, was in quiet.items():
        logging.getLogger(name).setLevel(was)


def written(form: str, work: Callable[[], object], level: str = "debug") -> str:
    stream = io.StringIO()
    logs.configure({"TOOLCRIB_LOG_FORMAT": form, "TOOLCRIB_LOG_LEVEL": level}, stream=stream)
    work()
    return stream.getvalue()


def one(work: Callable[[], object]) -> dict[str, Any]:
    text = written("json", work)
    assert text.count("\n") == 1
    line: dict[str, Any] = json.loads(text)
    return line


def test_a_line_has_time_level_logger_message_and_the_fields_given(logger: logging.Logger) -> None:
    line = one(lambda: logger.warning("lost %s", "it", extra=logs.about_object("Tool", "heist/hammer", a=1)))
    assert line.pop("ts").endswith("+00:00")
    assert line == {
        "level": "warning", "logger": "toolcrib.test", "message": "lost it",
        "kind": "Tool", "namespace": "heist", "name": "hammer", "a": 1,
    }  # fmt: skip


def test_plain_extra_and_dict_messages_become_fields_and_take_no_place_of_the_lines_own(
    logger: logging.Logger,
) -> None:
    assert one(lambda: logger.info("x", extra={"tool": "t", "odd": object()}))["tool"] == "t"
    line = one(lambda: logger.info({"message": "m", "status": 200}))
    assert (line["message"], line["status"]) == ("m", 200)
    assert one(lambda: logger.info("x", extra=logs.about(level="forged")))["level"] == "info"


def test_the_request_that_is_worked_on_is_in_every_line_and_only_meanwhile(logger: logging.Logger) -> None:
    with logs.working_on("r-1"):
        assert one(lambda: logger.info("x"))["request_id"] == "r-1"
    assert "request_id" not in one(lambda: logger.info("x"))


FORGED = 'calc\n2026-11-22 ERROR toolcrib: admin logged in\r\x1b[2K\x1b[31mred\u2028{"level":"error"}\u202egnp.exe\x9b\x7f\u2066\u200b'


@pytest.mark.parametrize("form", logs.FORMS)
def test_a_name_from_outside_can_forge_no_line_and_move_no_cursor(logger: logging.Logger, form: str) -> None:
    text = written(form, lambda: logger.info("tool %s", FORGED, extra=logs.about(name=FORGED)))
    assert text.endswith("\n")
    assert all(c.isprintable() for c in text[:-1])
    assert len(text.splitlines()) == 1


def test_a_traceback_in_text_is_indented_so_that_its_message_cannot_pass_for_a_line(
    logger: logging.Logger,
) -> None:
    def work() -> None:
        try:
            raise ValueError(FORGED)
        except ValueError:
            logger.exception("broke")

    first, *rest = written("text", work).splitlines()
    assert first.endswith("ERROR   toolcrib.test: broke")
    assert rest
    assert all(line.startswith("    | ") for line in rest)
    assert "admin logged in" in one(work)["exception"]


@pytest.mark.parametrize("form", logs.FORMS)
@pytest.mark.parametrize(
    "secret",
    [
        "Authorization: Bearer s3cr3t-token-value",
        "authorization: basic dXNlcjpzM2NyM3Q=",
        "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJzM2NyM3QifQ.c2lnc3Mzc3MzY3IzdA",
        "GET https://api.test/x?access_token=s3cr3t&b=c failed",
        "http://user:s3cr3t@collector:4318/v1/traces",
        "Authorization: Basic dXNlcjpwYXNz",
        "Authorization: Bearer\ts3cr3t-token-value",
        "https://user:s3cr3t/s3cr3t@host/path",
        "https://user:s3cr3t?s3cr3t@host/path",
        "https://user:s3cr3t@s3cr3t@host/path",
        "https://user:ü-s3cr3t@host/path",
        "postgres://user:s3cr3t@host/base",
        "http://a:s3cr3t@one,http://b:s3cr3t@two",
        "https://host/eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJzM2NyM3QifQ.c2lnc3Mzc3MzY3IzdA",
    ],
)
def test_what_looks_like_a_credential_or_a_query_is_cut_out(
    logger: logging.Logger, secret: str, form: str
) -> None:
    text = written(form, lambda: logger.info("it said %s; the end", secret, extra=logs.about(also=secret)))
    for piece in ("s3cr3t", "dXNlcjpzM2NyM3Q", "dXNlcjpwYXNz", "eyJzdWIi", "c2lnc3Mzc3MzY3"):
        assert piece not in text
    assert "[cut]" in text
    assert "the end" in text


def test_words_about_credentials_are_not_cut(logger: logging.Logger) -> None:
    text = "basic authentication, bearer credentials, https://docs.test/page"
    assert one(lambda: logger.info(text))["message"] == text


@pytest.mark.parametrize(
    "text",
    [
        "https://registry.test:8443/@scope/package",
        "http://[::1]:8080/a@b",
        "see https://one.test/a, https://two.test:80/b",
        "Basic Authentication and a Bearer Token",
    ],
)
def test_a_url_without_a_user_or_a_query_is_left_as_it_is(text: str) -> None:
    assert logs.scrubbed(text) == text


@pytest.mark.parametrize(
    "piece",
    ["http://", "http://a?", "http://a:b", "eyJaaaaaaaa-", "bearer ", "bearer a", "a-", "@:/?://", "a@"],
)
def test_cutting_costs_what_the_text_is_long(piece: str) -> None:
    def took(text: str) -> float:
        start = time.process_time()
        logs.scrubbed(text)
        return time.process_time() - start

    assert took("http://" + piece * 8000) < 1.5


def test_libraries_that_log_urls_or_steps_are_kept_quiet(logger: logging.Logger) -> None:
    def work() -> None:
        logging.getLogger("httpx").info("GET https://x.test/?token=1")
        logging.getLogger("kopf.objects").warning("handler")
        logging.getLogger("httpx").warning("heard")

    assert one(work)["message"] == "heard"


def test_json_is_the_form_where_nobody_looks_and_text_on_a_terminal(logger: logging.Logger) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream, is_json in ((io.StringIO(), True), (Terminal(), False)):
        logs.configure({}, stream=stream)
        logger.info("x")
        logger.debug("not at info")
        assert stream.getvalue().count("\n") == 1
        assert stream.getvalue().startswith("{") is is_json


@pytest.mark.parametrize(
    ("environ", "says"),
    [({"TOOLCRIB_LOG_FORMAT": "xml"}, "TOOLCRIB_LOG_FORMAT: json or text"), ({"TOOLCRIB_LOG_LEVEL": "loud"}, "TOOLCRIB_LOG_LEVEL")],
)  # fmt: skip
def test_a_wrong_form_or_level_names_its_variable(environ: dict[str, str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        logs.configure(environ)


@pytest.mark.parametrize("text", ["op-3-17", "task-0a-1", "A.b_c", "x" * 64])
def test_ids_of_letters_digits_dots_hyphens_and_underscores_are_taken_over(text: str) -> None:
    assert logs.is_sane_request_id(text)


@pytest.mark.parametrize("text", ["", "x" * 65, "a b", "a\n", "a;b", "ä", "a/b", "\x1b[0m"])
def test_other_ids_are_not(text: str) -> None:
    assert not logs.is_sane_request_id(text)


def test_a_lasting_trouble_is_said_when_it_begins_once_a_minute_with_a_count_and_when_it_is_over(
    logger: logging.Logger,
) -> None:
    now = [0.0]
    trouble = logs.Trouble(logger, clock=lambda: now[0])

    def work() -> None:
        for _ in range(600):
            trouble.failed("%s is away", "it", extra=logs.about(replica="r"))
            now[0] += 0.25
        trouble.over("it is back")
        trouble.over("it is back")

    lines = [json.loads(text) for text in written("json", work).splitlines()]
    told = [(x["message"], x.get("failures"), x.get("seconds")) for x in lines]
    assert told == [
        ("it is away", None, None),
        ("it is away", 241, 60.0),
        ("it is away", 481, 120.0),
        ("it is back", 600, 150.0),
    ]
    assert lines[0]["replica"] == "r"


SAID: dict[str, str | float | None] = {
    "message": 'POST /tools/{name} 200 "\\ \n ü \x7f', "status": 200, "agent": None, "ms": 0.1,
    "request_id": "r-1", "token": "Bearer abcdef0123456789",
}  # fmt: skip


def test_a_line_without_a_record_is_what_a_record_makes_of_it(logger: logging.Logger) -> None:
    def both() -> None:
        logs.say(logger, logging.WARNING, SAID)
        logger.warning(SAID)

    first, second = written("json", both).splitlines()
    now, begin = time.time(), len('{"ts": "')
    assert first[begin + 29 :] == second[begin + 29 :]
    assert all(
        0 <= now - datetime.fromisoformat(x[begin : begin + 29]).timestamp() < 60 for x in (first, second)
    )
    assert "0123456789" not in first
    assert written("json", lambda: logs.say(logger, logging.DEBUG, SAID), level="info") == ""


def test_who_else_looks_at_records_is_given_one(logger: logging.Logger) -> None:
    seen: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = seen.append  # type: ignore[method-assign]
    logging.getLogger("toolcrib").addHandler(handler)
    try:
        text = written("json", lambda: logs.say(logger, logging.INFO, SAID))
    finally:
        logging.getLogger("toolcrib").removeHandler(handler)
    assert [record.msg for record in seen] == [SAID]
    assert text.count("\n") == 1
    assert "status=200" in written("text", lambda: logs.say(logger, logging.INFO, SAID))


def test_on_an_event_loop_a_line_is_written_a_moment_later_and_before_what_is_logged_after_it(
    logger: logging.Logger,
) -> None:
    written = asyncio.Event()

    class Stream(io.StringIO):
        def flush(self) -> None:
            written.set()

    stream = Stream()
    logs.configure({"TOOLCRIB_LOG_FORMAT": "json"}, stream=stream)

    def said() -> list[str]:
        return [json.loads(line)["message"] for line in stream.getvalue().splitlines()]

    async def work() -> list[list[str]]:
        found = []
        logs.say(logger, logging.INFO, {"message": "1"})
        found.append(said())
        logger.info("2")
        found.append(said())
        logs.say(logger, logging.INFO, {"message": "3"})
        logging.getLogger().handlers[0].flush()  # as at the end of the process
        found.append(said())
        logs.say(logger, logging.INFO, {"message": "4"})
        written.clear()
        await asyncio.wait_for(written.wait(), 30)
        return found

    assert asyncio.run(work()) == [[], ["1", "2"], ["1", "2", "3"]]
    assert said() == ["1", "2", "3", "4"]


def test_a_line_for_a_stream_that_is_closed_harms_nobody_and_one_that_breaks_is_told_of_by_logging(
    logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError("no space left")

    stream = io.StringIO()
    logs.configure({"TOOLCRIB_LOG_FORMAT": "json"}, stream=stream)
    stream.close()
    logs.say(logger, logging.INFO, SAID)
    assert capsys.readouterr().err == ""

    logs.configure({"TOOLCRIB_LOG_FORMAT": "json"}, stream=Broken())
    logs.say(logger, logging.INFO, SAID)
    assert "no space left" in capsys.readouterr().err


def test_another_configuration_writes_what_waits_and_does_not_mind_a_stream_that_is_closed(
    logger: logging.Logger,
) -> None:
    async def say() -> None:
        logs.say(logger, logging.INFO, {"message": "waits"})

    first = io.StringIO()
    logs.configure({"TOOLCRIB_LOG_FORMAT": "json"}, stream=first)
    asyncio.run(say())
    logs.configure({"TOOLCRIB_LOG_FORMAT": "json"}, stream=io.StringIO())
    assert json.loads(first.getvalue())["message"] == "waits"

    closed = io.StringIO()
    logs.configure({"TOOLCRIB_LOG_FORMAT": "json"}, stream=closed)
    closed.close()
    logs.configure({"TOOLCRIB_LOG_FORMAT": "json"}, stream=io.StringIO())
