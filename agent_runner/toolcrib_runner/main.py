"""The runner's process: one agent, one task. The only module of the runner that reads the environment.

Exit codes: 0 answered; 2 the settings are wrong, or the agent has too many tools; 3 a bound was reached first; 4 the
model endpoint failed; 5 the registry did not answer (`--require-registry`); 130 interrupted (SIGINT), 143 ended (SIGTERM).
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import quote

from prometheus_client import CollectorRegistry, ProcessCollector

from toolcrib import process
from toolcrib.errors import SettingsInvalid
from toolcrib.settings import flag
from toolcrib.telemetry import logs, tracing
from toolcrib.version import __version__
from toolcrib_runner import health, results
from toolcrib_runner.adapters.openai_model import OpenAIModel
from toolcrib_runner.agent import DynamicToolAgent
from toolcrib_runner.errors import RegistryError, TokenUnavailable
from toolcrib_runner.loop import TaskLoop
from toolcrib_runner.metrics import RunnerMetrics
from toolcrib_runner.modes.kinds import Dialect, Mode
from toolcrib_runner.ready_sets import ReadySets
from toolcrib_runner.settings import SOURCE, RunnerSettings
from toolcrib_runner.tasks import Bounds, Outcome, Report, Way
from toolcrib_runner.tokens import TokenFile, named_in
from toolcrib_runner.usage import Usage

log = logging.getLogger("toolcrib_runner")
_LOOK = 0.5
"""Seconds between two looks whether a signal came."""


class _Ended(BaseException):
    """A signal asks the process to end; raised where it waits, so that it ends at once."""

    def __init__(self, signum: int) -> None:
        self.exit_code = 128 + signum
        super().__init__(signum)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `toolcrib-runner` and return its exit code."""
    options = vars(parser().parse_args(argv))
    try:
        settings = SOURCE.read(options, os.environ)
    except SettingsInvalid as invalid:
        return _refused(invalid)
    logs.configure({}, level=settings.log_level, form=settings.log_format)
    tracing.start(os.environ, "toolcrib-runner", _tracer)
    before = {s: signal.signal(s, _end) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        # no event loop to watch; its collections stop every thread all the same
        with process.heap.settled():
            return run(settings, os.environ.get("OPENAI_API_KEY", ""))
    except SettingsInvalid as invalid:
        return _refused(invalid)
    except _Ended as ended:
        return ended.exit_code
    finally:
        tracing.close()
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _tracer(service: str) -> tracing.Tracer:
    """OpenTelemetry's; imported only where traces are asked for."""
    from toolcrib.telemetry import otel

    return otel.tracer(service)


def _refused(invalid: SettingsInvalid) -> int:
    for problem in invalid.problems:
        print(f"toolcrib-runner: {problem}", file=sys.stderr)
    return 2


@contextmanager
def _given(field: str) -> Iterator[None]:
    """An address or folder that is refused within is a setting that is refused."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise SettingsInvalid([f"{flag(field)} ({SOURCE.variable(field)}): {error}"]) from error


def run(settings: RunnerSettings, model_key: str = "") -> int:
    """Compose the process from its settings, run the task, write the result; the exit code.

    Raises:
        SettingsInvalid: an address is none, or the folder of the counts cannot be made.
    """
    metrics = RunnerMetrics(CollectorRegistry())
    ProcessCollector(registry=metrics.registry)
    with ExitStack() as stack:
        with _given("state"):
            usage = Usage(settings.name, settings.state)
        with _given("registry_url"):
            made = DynamicToolAgent(
                settings.name,
                TokenFile(settings.token_file) if settings.token_file else None,
                settings.registry_url,
                ca_file=settings.ca_file,
                observer=metrics,
                usage=usage,
            )
        agent = stack.enter_context(made)
        if settings.metrics_port is not None:
            url = stack.enter_context(
                health.serving(
                    metrics.registry,
                    lambda: status(agent),
                    settings.metrics_host,
                    settings.metrics_port,
                    ready=lambda: agent.discovered,
                )
            )
            log.info("metrics at %s/metrics", url)
        code = (
            0
            if settings.task is None
            else _work(settings, agent, metrics, _api_key(settings, model_key), stack)
        )
        if settings.keep_serving:
            try:
                log.info("following the registry until SIGTERM")
                never = threading.Event()
                # a signal that comes just before a wait without an end is not heard until the next one
                while not never.wait(_LOOK):
                    pass
            except _Ended:
                return code
        return code


def _work(
    settings: RunnerSettings,
    agent: DynamicToolAgent,
    metrics: RunnerMetrics,
    api_key: Callable[[], str],
    stack: ExitStack,
) -> int:
    """Run the task and write its result."""
    assert settings.model_url is not None
    assert settings.task is not None
    with _given("model_url"):
        model = OpenAIModel(settings.model_url, settings.model, api_key)
    stack.callback(model.close)
    bounds = Bounds(
        turns=settings.max_turns,
        tokens=settings.max_tokens,
        seconds=settings.max_seconds,
        context=settings.max_context,
        model_patience=settings.model_patience,
    )
    loop: TaskLoop | None = None
    code: int | None = None
    report = Report(Outcome.STOPPED)
    try:
        task = sys.stdin.read() if settings.task == "-" else settings.task
        known = agent.discovered or agent.wait_until_discovered(settings.wait_for_registry)
        if not known and settings.require_registry:
            report = Report(
                Outcome.REGISTRY_AWAY, error=str(agent.last_error or "the registry has not responded yet")
            )
        else:
            if not known:
                log.warning("starting the task without tools: %s", agent.last_error)
            way = _way(settings, _core(settings, agent))
            loop = TaskLoop(agent, model, way=way, bounds=bounds, observer=metrics)
            report = loop.run(task, settings.system_prompt)
    except _Ended as ended:
        report, code = report if loop is None else loop.report, ended.exit_code
    usage = agent.usage_stats()
    form = results.as_json if settings.output == "json" else results.as_text
    print(form(report, usage), flush=True)
    if report.error:
        log.error("%s", report.error)
    return results.EXIT_CODES[report.outcome] if code is None else code


def _core(settings: RunnerSettings, agent: DynamicToolAgent) -> tuple[str, ...]:
    """The tools that `--core-tools` names, by the names that they are listed by."""
    named = tuple(name.strip() for name in (settings.core_tools or "").split(",") if name.strip())
    try:
        return agent.listed_names(named)
    except (RegistryError, TokenUnavailable) as error:
        log.warning("the ids of --core-tools cannot be looked up: %s", error)
        return named


def _way(settings: RunnerSettings, core: tuple[str, ...]) -> Way:
    """How the task is worked on; the mode cached remembers in the folder of the counts, if there is one."""
    kept = None if settings.state is None else settings.state / f"{quote(settings.name, safe='')}.ready.json"
    source = TokenFile(settings.token_file) if settings.token_file else None
    return Way(
        mode=Mode(settings.mode),
        dialect=Dialect(settings.dialect),
        core=core,
        tool_context=settings.tool_context,
        ready_sets=ReadySets(kept),
        # agents without a readable token are told apart by what they call themselves
        caller=lambda: named_in(source) or ("", settings.name),
    )


def status(agent: DynamicToolAgent) -> Mapping[str, Any]:
    """What `/healthz` says."""
    error = agent.last_error
    return {
        "status": "ok",
        "agent": agent.name,
        "version": __version__,
        "tools": len(agent.tools),
        "registry": "ok" if error is None and agent.discovered else f"away: {error or 'not asked yet'}",
    }


def _api_key(settings: RunnerSettings, from_environment: str) -> Callable[[], str]:
    if settings.model_key_file is None:
        # The client insists on a key; endpoints without authentication take any.
        key = from_environment or "none"
        return lambda: key
    file = TokenFile(settings.model_key_file)
    try:
        file()
    except TokenUnavailable as error:
        log.warning("the model endpoint's key: %s", error)
    return file


def _end(signum: int, _: object) -> None:
    signal.signal(signum, signal.SIG_DFL)
    raise _Ended(signum)


def parser() -> argparse.ArgumentParser:
    """Every option."""
    made = argparse.ArgumentParser(
        prog="toolcrib-runner",
        description="Run one agent: discover its tools, work on a task with a model, and count tool use.",
        epilog="Exit codes: 0 answered, 2 wrong settings or too many tools, 3 a bound was reached, 4 "
        "the model endpoint failed, 5 no registry, 130 and 143 interrupted. The token is never a "
        "flag: pass a file.",
    )
    SOURCE.add_flags(made, short={"output": "-o"})
    made.add_argument(
        "--version",
        action="version",
        version=f"toolcrib-runner {__version__}",
        help="Print the version and exit.",
    )
    return made


if __name__ == "__main__":
    raise SystemExit(main())
