"""A session that runs: turn after turn, each written down, until the last one, a pause, or the loss of the store."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from toolcrib_cli.session_store.database import StoreError
from toolcrib_cli.session_store.records import Records, TakenOver
from toolcrib_cli.session_store.rows import INTERRUPTED, RUNNING, Ended, Session, State, Turn
from toolcrib_cli.sessions import memory, prompts
from toolcrib_cli.sessions.definition import Agent, Definition
from toolcrib_cli.sessions.recording import RecordingTools
from toolcrib_cli.sessions.team import Team
from toolcrib_runner.errors import RunnerError
from toolcrib_runner.loop import TaskLoop
from toolcrib_runner.ready_sets import ReadySets
from toolcrib_runner.tasks import Bounds, Outcome, Report, Way
from toolcrib_runner.tokens import named_in

log = logging.getLogger(__name__)

BEAT = 2.0
"""Seconds between two signs of life in the store."""
STILL = 3 * BEAT
"""Seconds without one, after which a session may be taken over."""
_LONGEST = 256 * 1024
"""Characters of an answer that are kept."""
_AGAIN = frozenset({RUNNING, INTERRUPTED})
"""Outcomes of turns that are to be done again."""
_QUOTING = frozenset({Outcome.MODEL_FAILED, Outcome.LOOPING})
"""Outcomes whose reason can repeat what an agent wrote: an endpoint's words, a search."""
_NOT_KEPT = "the reason is not kept: it can quote messages"
_LOOK = 0.25
"""Seconds between two looks at the beat of a run."""
_DISCOVERED = 10.0
"""Seconds for the first discovery of a turn."""
Told = Callable[[int, Agent, Turn | None], None]
"""Told when a turn begins (None) and when it has ended."""


class Beating:
    """The signs of life of a run, on a thread of their own."""

    def __init__(self, records: Records, session: str, holder: str, every: float = BEAT) -> None:
        self._records = records
        self._session = session
        self._holder = holder
        self._every = every
        self._ended = threading.Event()
        self.lost = threading.Event()
        """Somebody else runs the session now."""
        self._thread = threading.Thread(target=self._beat, name="toolcrib-session-beat", daemon=True)

    def __enter__(self) -> Beating:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._ended.wait(self._every):
            try:
                self._records.beat(self._session, self._holder)
            except TakenOver:
                self.lost.set()
                return
            except StoreError as error:
                # the run finds out by itself when it next writes, and that is what it reports
                log.warning("%s", error)


def take_over(
    records: Records,
    session: Session,
    holder: str,
    *,
    still: float = STILL,
    wait: Callable[[float], object] = time.sleep,
) -> bool:
    """Become the one who runs a session that nobody runs, or whose run shows no sign of life; False if another does.

    No clock is compared: a run that lives changes its beat while it is watched.
    """
    seen = session
    if session.holder is not None:
        wait(still)
        now = records.find(session.id)
        if now is None or (now.holder, now.beat) != (session.holder, session.beat):
            return False
        seen = now
    return records.take(seen, holder)


def pause_abandoned(
    records: Records,
    session: Session,
    holder: str,
    *,
    still: float = STILL,
    wait: Callable[[float], object] | None = None,
) -> bool:
    """Pause a session whose run shows no sign of life; False: it lives, or has ended by itself meanwhile."""

    def watch(seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            now = records.find(session.id)
            if now is None or (now.holder, now.beat) != (session.holder, session.beat):
                return
            time.sleep(min(_LOOK, max(0.0, until - time.monotonic())))

    if session.holder is None or not take_over(records, session, holder, still=still, wait=wait or watch):
        return False
    records.leave(session.id, holder, State.PAUSED, "asked for; nobody ran it")
    return True


class Run:
    """One run of a session that `holder` has taken."""

    def __init__(
        self,
        records: Records,
        team: Team,
        session: str,
        holder: str,
        told: Told,
        *,
        with_memory: bool,
        beat: float = BEAT,
    ) -> None:
        self._records = records
        self._team = team
        self._definition: Definition = team.definition
        self._session = session
        self._holder = holder
        self._told = told
        self._with_memory = with_memory
        self._beat = beat
        self._said: deque[tuple[str, str]] = deque(maxlen=prompts.MOST_SAID)
        self._ready: dict[str, ReadySets] = {}

    def until_done(self) -> State:
        """Do the turns that are left; where the session stands then.

        Raises:
            StoreError: the store fails; what it acknowledged is kept, and the session can be resumed.
            TakenOver: somebody else has resumed it.
        """
        turns = {turn.number: turn for turn in self._records.turns(self._session)}
        for turn in turns.values():
            self._say(turn.agent, turn.answer or "")
        with (
            self._ends_with_pause(),
            Beating(self._records, self._session, self._holder, self._beat) as beating,
        ):
            for number in range(1, self._definition.turns + 1):
                if number in turns and turns[number].outcome not in _AGAIN:
                    continue
                if self._records.beat(self._session, self._holder):
                    self._records.leave(self._session, self._holder, State.PAUSED, "asked for")
                    return State.PAUSED
                self._turn(number, self._definition.agent_of(number), beating)
            self._records.leave(self._session, self._holder, State.FINISHED)
            return State.FINISHED

    @contextmanager
    def _ends_with_pause(self) -> Iterator[None]:
        """An interruption leaves the session paused, so that nobody has to wait before it is resumed."""
        try:
            yield
        except KeyboardInterrupt:
            self._records.leave(self._session, self._holder, State.PAUSED, "interrupted")
            raise

    def _turn(self, number: int, agent: Agent, beating: Beating) -> None:
        attempt = self._records.begin_turn(self._session, self._holder, number, agent.name)
        self._told(number, agent, None)
        started = time.monotonic()
        with self._team.agent(agent, self._session, number) as connected:
            tools = RecordingTools(
                connected, self._records, self._session, self._holder, agent.account, number, attempt
            )
            if not connected.wait_until_discovered(_DISCOVERED):
                report = Report(Outcome.REGISTRY_AWAY, error=str(connected.last_error))
            elif not connected.tools and self._refused(agent):
                report = Report(
                    Outcome.STOPPED, error=f"the registry does not accept the token of {agent.account}"
                )
            else:
                report = self._work(number, agent, tools, beating)
            if self._with_memory and report.outcome is Outcome.ANSWERED and report.answer:
                memory.stored(tools, self._session, agent.account, number, report.answer)
        if beating.lost.is_set():
            raise TakenOver(self._session)
        self._say(agent.name, report.answer)
        error = report.error if self._keeps or report.outcome not in _QUOTING else _NOT_KEPT
        self._records.end_turn(
            self._session,
            self._holder,
            number,
            Ended(
                outcome=report.outcome.value,
                error=_storable(error),
                mode=report.mode,
                replies=report.turns,
                prompt_tokens=report.prompt_tokens,
                completion_tokens=report.completion_tokens,
                answer=_storable(report.answer[:_LONGEST]) if self._keeps else None,
                seconds=time.monotonic() - started,
            ),
        )
        (ended,) = self._records.turns(self._session, turn=number)
        self._told(number, agent, replace(ended, error=report.error))

    def _refused(self, agent: Agent) -> bool:
        """Whether its token is not accepted: the list of such an agent is empty, like that of one without grants."""
        registry = self._team.registry(agent, _DISCOVERED)
        try:
            found = registry.discover()
        except RunnerError:  # what the turn meets will say why
            return False
        finally:
            registry.close()
        return found is not None and not found.authenticated

    def _say(self, agent: str, answer: str) -> None:
        if answer:
            self._said.append((agent, answer[: prompts.MOST_OF_ONE]))

    def _work(self, number: int, agent: Agent, tools: RecordingTools, beating: Beating) -> Report:
        remembered = memory.recalled(tools, self._session, agent.account) if self._with_memory else ""
        bounds = Bounds(turns=agent.bounds.replies, tokens=agent.bounds.tokens, seconds=agent.bounds.seconds)
        source = self._team.tokens[agent.name]
        way = Way(
            mode=agent.mode,
            dialect=agent.dialect,
            ready_sets=self._ready.setdefault(agent.name, ReadySets(None)),
            caller=lambda: named_in(source) or ("", agent.account),
        )
        loop = TaskLoop(tools, self._team.model(agent), way=way, bounds=bounds, stop=beating.lost)
        try:
            return loop.run(
                prompts.task(self._definition, agent, number, list(self._said), remembered),
                prompts.system(self._definition, agent),
            )
        except RunnerError as error:  # nothing that the loop knows: it is this turn's end, not the session's
            loop.report.outcome, loop.report.error = Outcome.STOPPED, str(error)
            return loop.report

    @property
    def _keeps(self) -> bool:
        return self._definition.session.messages.value == "keep"


def _storable(text: str) -> str:
    """PostgreSQL stores every character but NUL."""
    return text.replace("\0", "\ufffd")
