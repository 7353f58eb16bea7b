"""Performs a run in parts: the same session, driver and effects as in one process, with a gate that stops it.

    begin       record the prompt; stop before the first model call
    advance     perform the part that is due; stop before the next
    close       end the run as cancelled

A part is one model call, or the calls of one reply that run in one place. Hooks, retrieval and records belong to the
part before. A run is kept in memory between its parts, and read from the log again if another process has continued it.
"""

import asyncio
import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypedDict, TypeVar, Unpack
from weakref import WeakKeyDictionary

from bridle.core.effects import AskModel, Effect, ProbeTool, RunTool
from bridle.core.loop import next_effects
from bridle.core.recovery.log_repair import fold_log
from bridle.core.state import Phase, State
from bridle.ports.store import LiveStore, Store, supports
from bridle.run.agent import Agent
from bridle.run.archive.sessions import find_due, list_all_approvals
from bridle.run.calls.approval import list_external_calls, wait_for_answers
from bridle.run.context.run_options import RunOptions, find_output_type, open_to_resume
from bridle.run.control.live import LivePublisher
from bridle.run.driver import Driver
from bridle.run.recovery.session_log import WriteEpoch, load_log
from bridle.run.result import make_result, make_session_result
from bridle.run.session import ResumeFlags, Session
from bridle.values.calls import CONTROL_LOG_PREFIX, control_log_name
from bridle.values.errors import Conflict, MisuseError, SessionNotFound
from bridle.values.events import Prompted, Resumed
from bridle.values.message import Prompt
from bridle.values.result import History, Result
from bridle.values.usage import Budget

from .status import Part, RunStatus

T = TypeVar("T")
MakeContext = Callable[[str], object]
"""Makes the context of a run from the id of its session, on each worker."""
RUNS_KEPT_MAX = 200
# not from outside: time that we wait for our own work
SLOT_SECONDS_MIN, SLOT_SECONDS_MAX = 0.05, 2.0
"""Time between two looks for a free place of a limited tool: doubled while there is none."""
SLOT_WAIT_SECONDS = 20.0
"""Time for which a worker waits for one; it is in the margin of the part. Then the engine waits."""
WAIT_SECONDS_MIN = 2.0
"""A shorter wait before a model call is spent on the worker."""
MARGIN_SECONDS = 60.0
"""Time of a part beside its calls: hooks, retrieval, writing."""
SECONDS_DEFAULT = 7 * 24 * 3600.0
"""Time of a part that has no limit of its own; a dead worker is noticed much earlier."""


@dataclass(frozen=True, kw_only=True)
class ToolPlacement:
    """The place of a tool's calls on an engine, by the tool's name."""

    queue: str = ""
    """Queue of the workers that run it, such as those with a GPU; empty for any worker of the agent."""
    at_once_max: int | None = None
    """Calls at the same time, of all runs on all workers that share the store."""
    heartbeat_seconds: float | None = None
    """Silence after which the worker of a call counts as dead; None for the default of the engine."""

    def __post_init__(self) -> None:
        if self.at_once_max is not None and self.at_once_max < 1:
            raise MisuseError(f"ToolPlacement(at_once_max=…) is at least 1, not {self.at_once_max}")
        if self.heartbeat_seconds is not None and self.heartbeat_seconds < 1:
            raise MisuseError(
                f"ToolPlacement(heartbeat_seconds=…) is at least 1, not {self.heartbeat_seconds:g}"
            )


NO_PLACEMENT = ToolPlacement()


class StartOptions(TypedDict, total=False):
    """The options of `start`, as those of `Agent.run`."""

    new: bool | None
    budget: Budget | None
    history: History | None
    caller: str
    tenant: str
    traceparent: str
    options: RunOptions


class KeptRun(NamedTuple):
    """A run that stopped, with all that the next part needs."""

    session: Session
    driver: Driver


class PartGate:
    """Admits the effects of one part."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self.kept: KeptRun | None = None

    def admit(self, effects: Sequence[Effect]) -> Sequence[Effect]:
        return [effect for effect in effects if self._is_admitted(effect)]

    def keep(self, session: Session, driver: Driver) -> None:
        self.kept = KeptRun(session, driver)

    def _is_admitted(self, effect: Effect) -> bool:
        if isinstance(effect, AskModel):
            return self._part.kind == "model" and effect.name == self._part.name
        # A call that becomes due meanwhile is not in the time limit of the part, and has no place.
        return not isinstance(effect, RunTool | ProbeTool) or effect.name in self._part.calls


class PartRunner(Generic[T]):
    """Performs the parts of one agent's runs in this process."""

    def __init__(
        self,
        agent: Agent[Any, T],
        *,
        make_context: MakeContext | None = None,
        placements: Mapping[str, ToolPlacement] | None = None,
        streams: bool = True,
    ) -> None:
        self.agent, self._make_context, self._streams = agent, make_context, streams
        self._placements = dict(placements or {})
        self._resources = agent._resources
        if self._resources.approver is wait_for_answers:  # the engine waits, not a worker
            self._resources = replace(self._resources, approver=None)
        self._publisher: LivePublisher | None = None
        if streams and supports(agent.store, LiveStore):
            self._publisher = LivePublisher(agent.store)
            watchers = (*self._resources.watchers, self._publisher)
            self._resources = replace(self._resources, watchers=watchers)
        self._kept: OrderedDict[str, KeptRun] = OrderedDict()
        self._fences: WeakKeyDictionary[asyncio.Task[Any], WriteEpoch] = WeakKeyDictionary()
        """Of the attempts at a part, by their tasks: two attempts at one part may be here."""

    async def begin(
        self, prompt: Prompt, session: str | None, **given: Unpack[StartOptions]
    ) -> tuple[str, RunStatus]:
        """Record a prompt; returns the session, and the part that is due first."""
        gate = PartGate(Part())
        name, start, _ = self.agent._prepare_run(
            prompt,
            session,
            given.get("new"),
            given.get("budget"),
            given.get("history"),
            given.get("caller", ""),
            given.get("tenant", ""),
            given.get("traceparent", ""),
            self._find_context(session or ""),
            False,
            given.get("options", RunOptions()),
            stream=self._streams,
            gate=gate,
        )
        await start()
        return name, await self._describe(name, await self._read_place(name, gate), 0)

    async def resume(self, session: str, budget: Budget | None) -> RunStatus:
        """Record that a run goes on, with a new budget if one is given; returns the part that is due first."""
        gate = PartGate(Part())
        await self._open(session, gate, budget).resume(budget, None, ResumeFlags(engine=True))
        return await self._describe(session, await self._read_place(session, gate), 0)

    async def advance(self, session: str, stopped: RunStatus, *, take_over: bool = False) -> RunStatus:
        """Perform the part that is due; `take_over`: the worker that had it before may still be alive."""
        take_over = take_over and not await self._is_continued_elsewhere(session, stopped)
        part, requests = stopped.part, await self._count_requests(session)
        kept = self._kept.pop(session, None)
        if kept is None or kept.driver.place != (stopped.seq, stopped.head):
            kept = None
            if await self._find_prompt(session, stopped.seq) is not None:  # the run has ended elsewhere
                return await self._describe(session, await self._read_run(session, stopped.seq), requests)
        if part.kind == "look":
            state = await self.read_state(session)
            place = state, stopped.seq, stopped.head
            before = await self._describe(session, place, requests)  # it may be busy
            if not await self._has_news(session, stopped, before.state, state):
                return replace(before, worker=stopped.worker)
        gate = PartGate(part)
        try:
            async with AsyncExitStack() as held:
                if part.kind == "tools":
                    try:
                        # An attempt that takes over must not end before it has: the next one would not.
                        async with asyncio.timeout(None if take_over else SLOT_WAIT_SECONDS):
                            limits, sleep = self._list_limits(part), self.agent.clock.sleep
                            await hold_slots(held, self.agent.store, limits, sleep)
                    except TimeoutError:
                        return replace(stopped, state="busy")  # the engine waits, outside of the part's limit
                if kept is not None and not take_over:
                    kept.driver.gate = gate
                    self._keep_fence(kept.session.fence)
                    await kept.session.advance(kept.driver)
                else:
                    goes_on = part.kind not in ("look", "resume")
                    head = stopped.head if goes_on else ""
                    flags = ResumeFlags(take_over=take_over, stopped_at=head, engine=True)
                    await self._open(session, gate).resume(None, None, flags)
        except Conflict:
            return replace(stopped, state="busy")  # with the old count: the requests are still to be taken
        finally:
            self._end_reply(session)
        status = await self._describe(session, await self._read_place(session, gate), requests)
        if status.state == "running" and gate.kept is not None:
            self._kept[session] = gate.kept
            if len(self._kept) > RUNS_KEPT_MAX:
                self._kept.popitem(last=False)
        return status

    async def close(self, session: str, stopped: RunStatus, *, take_over: bool = False) -> RunStatus:
        """End the run as cancelled, if it has not ended; `take_over` as in `advance`."""
        take_over = take_over and not await self._is_continued_elsewhere(session, stopped)
        self._kept.pop(session, None)
        if await self._find_prompt(session, stopped.seq) is not None:  # the run has ended elsewhere
            return await self._describe(session, await self._read_run(session, stopped.seq), 0)
        gate = PartGate(Part())
        try:
            await self._open(session, gate).close(None, take_over=take_over)
        finally:
            self._end_reply(session)
        return await self._describe(session, await self._read_place(session, gate), 0)

    def revoke(self, attempt: "asyncio.Task[Any]") -> None:
        """Refuse all further writes of this attempt at a part: another one has the run."""
        if attempt in self._fences:
            self._fences[attempt].revoke()

    def _end_reply(self, session: str) -> None:
        """Show no more of a reply that this part did not record, because another process has the run."""
        if self._publisher is not None:
            self._publisher.end(session)

    def _keep_fence(self, fence: WriteEpoch) -> None:
        attempt = asyncio.current_task()
        assert attempt is not None
        self._fences[attempt] = fence

    async def read_result(self, session: str, seq: int, *, is_end: bool) -> Result[T]:
        """The result of the run that has this record, from the log: as it was then (`is_end`), or as it is now."""
        place = await (self._read_until(session, seq) if is_end else self._read_run(session, seq))
        opened = self.agent.open_session(session)
        output_type = find_output_type(self.agent.parts, RunOptions(), place[0])
        return await make_session_result(opened, place[0], output_type)

    async def _read_run(self, session: str, seq: int) -> tuple[State, int, str]:
        """The state of the run that has this record; of the last one, it is that of the log."""
        later = await self._find_prompt(session, seq)
        return await self._read_until(session, None if later is None else later - 1)

    async def _read_until(self, session: str, seq: int | None) -> tuple[State, int, str]:
        log = await load_log(self.agent.store, session)
        if seq is None or log.length <= seq:
            return log.state, log.length, log.head
        records = await self.agent.store.read(session, 0, seq)
        return fold_log(records).state, seq, records[-1].hash

    async def _find_prompt(self, session: str, after: int) -> int | None:
        """Number of the next prompt, which starts another run."""
        records = await self.agent.store.read(session, after)
        return next((record.seq for record in records if isinstance(record.event, Prompted)), None)

    async def read_state(self, session: str) -> State:
        return (await load_log(self.agent.store, session)).state

    async def describe(self, session: str) -> RunStatus:
        """The state of a session's run, read from the log."""
        place = await self._read_place(session, PartGate(Part()))
        if place[0].phase is Phase.NEW:
            raise SessionNotFound(f"there is no session {session!r} in this store")
        return await self._describe(session, place, 0)

    def _open(self, session: str, gate: PartGate, budget: Budget | None = None) -> Session:
        self._keep_fence(fence := WriteEpoch())
        agent, context = self.agent, self._find_context(session)
        shared = self._resources, session, agent.parts, RunOptions(), budget
        return open_to_resume(
            *shared, stream=self._streams, control=None, context=context, fence=fence, gate=gate
        )

    def _find_context(self, session: str) -> object:
        return None if self._make_context is None else self._make_context(session)

    async def _count_requests(self, session: str) -> int:
        return len(await self.agent.store.read(control_log_name(session)))

    async def _has_news(self, session: str, stopped: RunStatus, now: str, state: State) -> bool:
        """True if a run that waits can go on: an answer or a request is there, or a question has expired."""
        store = self.agent.store
        if now == "paused":
            return False  # only `resume` continues it; the request to pause is one that came after the last count
        if await store.read(session, stopped.seq) or await self._count_requests(session) > stopped.requests:
            return True
        if stopped.wake_at is not None and self.agent.clock.now() >= stopped.wake_at:
            return True
        return now == "waiting" and await find_due(store, state) == "answered"

    async def _is_continued_elsewhere(self, session: str, stopped: RunStatus) -> bool:
        """True if another process, such as `bridle resume`, has taken the run up since: it is not taken over."""
        events = [record.event for record in await self.agent.store.read(session, stopped.seq)]
        begun = [event for event in events if isinstance(event, Resumed | Prompted)]
        # guard: session-was-resumed
        return bool(begun) and not getattr(begun[-1], "engine", False)

    async def _read_place(self, session: str, gate: PartGate) -> tuple[State, int, str]:
        if gate.kept is not None:
            return gate.kept.driver.state, *gate.kept.driver.place
        log = await load_log(self.agent.store, session)
        return log.state, log.length, log.head

    def _list_limits(self, part: Part) -> dict[str, int]:
        limits = {
            name: self._placements[name].at_once_max
            for name in part.label.split(", ")
            if name in self._placements
        }
        return {name: limit for name, limit in limits.items() if limit is not None}

    async def _describe(self, session: str, place: tuple[State, int, str], requests: int) -> RunStatus:
        state, seq, head = place
        spent: Result[str] = make_result(session, state, None)
        status = RunStatus(seq=seq, head=head, requests=requests, steps=spent.steps, usd=spent.cost)
        stop = state.run.end.stop or ""
        if state.phase in (Phase.NEW, Phase.IDLE):
            return replace(status, state="paused" if stop == "paused" else "ended", stop=stop)
        if state.phase is Phase.AWAITING_APPROVAL:
            asked = await list_all_approvals(self.agent.store, session, state)
            return replace(
                status,
                state="waiting",
                stop=stop,
                questions=tuple(question.id for question in asked),
                external_calls=tuple(call.id for call in list_external_calls(state)),
                wake_at=min((each.expires_at for each in asked if each.expires_at is not None), default=None),
            )
        return self._describe_next(status, state)

    def _describe_next(self, status: RunStatus, state: State) -> RunStatus:
        """The status of a run that goes on, with the part that is due."""
        effects = next_effects(state)
        # A person whom the worker asks may take long; a dead worker is noticed earlier.
        seconds_min = SECONDS_DEFAULT if self._resources.approver is not None else 0.0
        for effect in effects:
            if isinstance(effect, AskModel):
                left = effect.deadline - state.now if effect.deadline is not None else SECONDS_DEFAULT
                limits = self._resources.deadlines
                total = limits.total_seconds if limits is not None else None
                seconds = effect.wait_seconds + min(left, total or SECONDS_DEFAULT) + MARGIN_SECONDS
                label = f"step {effect.step}" + (f", attempt {effect.attempt}" if effect.attempt > 1 else "")
                wakes = effect.wait_seconds > WAIT_SECONDS_MIN
                return replace(
                    status,
                    part=Part(kind="model", name=effect.name, label=label, seconds=max(seconds, seconds_min)),
                    wake_at=state.now + effect.wait_seconds if wakes else None,
                )
        calls = [effect for effect in effects if isinstance(effect, RunTool | ProbeTool)]
        if not calls:
            return status
        placed = [(self._placements.get(effect.call.name, NO_PLACEMENT), effect) for effect in calls]
        queue = placed[0][0].queue
        here: list[tuple[ToolPlacement, RunTool | ProbeTool]] = []
        limited: set[str] = set()
        for placement, effect in placed:
            # The part holds one place of each limited tool, so it runs one call of each.
            if placement.queue == queue and effect.call.name not in limited:
                here.append((placement, effect))
                limited |= {effect.call.name} if placement.at_once_max is not None else set()
        seconds = sum(effect.timeout_seconds or SECONDS_DEFAULT for _, effect in here) + MARGIN_SECONDS
        names = ", ".join(dict.fromkeys(effect.call.name for _, effect in here))
        beats = [each.heartbeat_seconds for each, _ in here if each.heartbeat_seconds is not None]
        part = Part(
            kind="tools", calls=tuple(effect.name for _, effect in here), label=names,
            seconds=max(min(seconds, SECONDS_DEFAULT), seconds_min), queue=queue,
            heartbeat_seconds=max(beats, default=None),
        )  # fmt: skip
        return replace(status, part=part)


async def hold_slots(
    held: AsyncExitStack, store: Store, limits: Mapping[str, int], sleep: Callable[[float], Awaitable[None]]
) -> None:
    """Hold one of the places of each of these tools; waits until one is free. In order of their names: no deadlock.

    A place is a lease of the store, which a process loses when it ends, however it ends.
    """
    for name, limit in sorted(limits.items()):
        pause = SLOT_SECONDS_MIN
        while not await _take_slot(held, store, name, limit):
            await sleep(pause * random.uniform(0.5, 1.5))
            pause = min(2 * pause, SLOT_SECONDS_MAX)


async def _take_slot(held: AsyncExitStack, store: Store, name: str, limit: int) -> bool:
    for number in random.sample(range(limit), limit):
        try:
            await held.enter_async_context(store.lease(f"{CONTROL_LOG_PREFIX}slot:{name}:{number}"))
        except Conflict:
            await asyncio.sleep(0)
            continue
        return True
    return False
