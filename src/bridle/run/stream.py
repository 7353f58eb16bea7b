"""Streams a run to its watchers and to any number of viewers; the run never waits for them.

    async for event in agent.stream(prompt)     the loop owns the run: leaving it ends the run, so that a
                                                forgotten stream does not keep spending
    run = agent.stream(prompt).start()          the run is independent
    async for event in run.view()               watch it; leaving changes nothing
    await run.result()                          wait for the end; giving up changes nothing
    await run.steer("…")                        add a message, taken up before the next request
    await run.pause()                           stop after the current step; `agent.resume` continues
    run.cancel()                                end it at once
    to_sse(event)                               what a browser may see of an item, as server-sent event

Each viewer has its own buffer.  When `deltas_max` deltas wait in it, further deltas are counted instead of
stored until half of them have been taken, and a `DeltasSkipped` takes their place.  Events are never lost:
their number is bounded by the steps of the run, and the whole reply is in one of them.  Buffers are held
weakly: leaving the loop is enough to stop watching.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Generic, Self, TypeVar, get_args

import msgspec

from bridle.ports.watcher import AgentWatcher, RunSummary, SummaryWatcher, Watcher
from bridle.run.cancellation import finish_despite_cancel
from bridle.run.context.shown_deltas import StreamItem, ViewerBuffer, ViewerBuffers
from bridle.tools.schema.json_form import to_json_form
from bridle.tools.schema.output_type import OutputType
from bridle.tools.schema.partial_output import PartialTracker
from bridle.values.base import Value
from bridle.values.errors import MisuseError
from bridle.values.events import (
    ApprovalAnswered,
    ApprovalAsked,
    Event,
    PauseRequested,
    RunEnded,
    Steered,
    ToolFinished,
    ToolStarted,
)
from bridle.values.record import Record, encode_item
from bridle.values.result import (
    AttemptRestarted,
    Delta,
    DeltasSkipped,
    FinalAnswer,
    PartialOutput,
    Progress,
    Result,
    TextDelta,
)
from bridle.values.text import escape_text, locate_error, repair_surrogates

T = TypeVar("T")


STREAM_TYPES = frozenset(get_args(StreamItem))
DELTAS_BUFFERED_MAX = 1_000
"""About a page of text, in the smallest deltas that providers send."""
PARTIALS_BEHIND_MAX = 32
"""With more items waiting than this, the partial answers between them are skipped."""
LOG = logging.getLogger("bridle")


CALL_FIELDS = ("call_id", "name", "arguments")
"""Of every item about a call; in a frame they are at the top level."""


BROWSER_FIELDS: Mapping[type, tuple[str, ...]] = {
    TextDelta: ("text",),
    AttemptRestarted: ("attempt", "is_text_void"),
    DeltasSkipped: ("count",),
    Progress: ("call_id", "name", "fraction"),
    ToolStarted: ("call_id", "name", "attempt"),
    ToolFinished: ("call_id", "name", "outcome"),
    ApprovalAsked: ("call_id", "name", "arguments", "preview", "question", "expires_at", "binding"),
    ApprovalAnswered: ("call_id", "answer"),
    RunEnded: ("stop",),
}
"""Fields that `to_sse` sends by default; it sends nothing of an item that is not listed here."""
BROWSER_RESULT_FIELDS = ("session", "stop", "text")
RESULT_FIELDS = (*BROWSER_RESULT_FIELDS, "reason", "usage", "cost", "steps")


def to_sse(item: StreamItem | FinalAnswer[T] | PartialOutput[T], *, full: bool = False) -> str:
    """Encode an item of a stream, or of `Stream.partial`, as one frame of server-sent events.

    The event name is the item's type, and the data is JSON. By default it is what a user may see: the text, names
    and states of calls, questions to a person, and the answer; for other items the frame is empty. `full=True`
    sends every item whole, in the form that the log has: instructions, tools, policy and results too.
    """
    if isinstance(item, FinalAnswer):
        return _make_frame("final_answer", _describe_result(item.result, full=full))
    if isinstance(item, PartialOutput):
        described = {"value": item.value, "answer": item.answer, "complete": item.complete}
        return _make_frame("partial_output", {"type": "partial_output", **described})
    if type(item) not in STREAM_TYPES:
        raise MisuseError(f"to_sse takes an item of a stream, not {type(item).__name__}")
    # guard: browser-fields
    if not full:
        return _make_browser_frame(item)
    missing = [name for name in CALL_FIELDS if name not in item.__struct_fields__ and hasattr(item, name)]
    added = {name: getattr(item, name) for name in missing}
    return _make_frame(
        str(item.__struct_config__.tag), {**msgspec.to_builtins(item), **added} if added else item
    )


def _make_browser_frame(item: StreamItem) -> str:
    fields = BROWSER_FIELDS.get(type(item))
    if fields is None:
        return ""
    tag = str(item.__struct_config__.tag)
    shown = {name: _read_field(item, name) for name in fields}
    return _make_frame(
        tag, {"type": tag, **{name: value for name, value in shown.items() if value is not None}}
    )


def _read_field(item: StreamItem, name: str) -> object:
    return (
        item.result.outcome if name == "outcome" and isinstance(item, ToolFinished) else getattr(item, name)
    )


def _make_frame(name: str, data: Value | dict[str, object]) -> str:
    return f"event: {name}\ndata: {encode_item(data).decode()}\n\n"


def _describe_result(result: Result[T], *, full: bool) -> dict[str, object]:
    names = RESULT_FIELDS if full else BROWSER_RESULT_FIELDS
    described: dict[str, object] = {"type": "final_answer", **{name: getattr(result, name) for name in names}}
    with suppress(TypeError):  # some output types have no JSON form; `text` has the answer as it arrived
        described["output"] = to_json_form(result.output)
    return described


RUN_OVER = "the run has ended; send a new prompt with agent.run(…, session={session!r})"
PAUSE_REASON = "paused by the caller"


class RunControl:
    """Connects a started run with its viewers, and records what a person asks of it."""

    def __init__(self, session: str) -> None:
        self._session, self.viewers = session, ViewerBuffers()
        self._record: Callable[[Event], Coroutine[None, None, None]] | None = None
        self._has_begun = False
        self._begun: asyncio.Event | None = None
        """Made when a caller waits for the run to begin."""

    def attach(self, record: Callable[[Event], Coroutine[None, None, None]]) -> None:
        """`record` writes to the log of the run, which has begun."""
        self._record = record
        self._begin()

    def close(self) -> None:
        self._record = None
        self._begin()

    def _begin(self) -> None:
        self._has_begun = True
        if self._begun is not None:
            self._begun.set()

    async def record(self, event: Event) -> None:
        """Record the event once the run has begun; the event is durable when this returns."""
        if not self._has_begun:
            self._begun = self._begun or asyncio.Event()
            await self._begun.wait()
        if self._record is None:
            raise MisuseError(RUN_OVER.format(session=self._session))
        try:
            # A cancelled write would break the driver of the run.
            await finish_despite_cancel(self._record(event))
        except MisuseError:  # core takes these events in every phase of a run, and not after its end
            raise MisuseError(RUN_OVER.format(session=self._session)) from None


class WatcherGroup:
    """Shows everything to the watchers in order; a watcher that raises is removed."""

    def __init__(self, session: str, watchers: Sequence[Watcher]) -> None:
        self._session, self.watchers = session, tuple(watchers)
        self._agent: tuple[str, str] | None = None
        """Agent and tenant that the watchers were told."""

    def name_agent(self, agent: str, tenant: str) -> None:
        """Tell the watchers that take it the agent and the tenant of the run, if they are others than before."""
        if self._agent == (agent, tenant):
            return
        self._agent = agent, tenant
        for watcher in [each for each in self.watchers if isinstance(each, AgentWatcher)]:
            try:
                watcher.on_run_agent(self._session, agent, tenant)
            except Exception as error:  # noqa: BLE001 - a watcher can never change a run
                self._dismiss(watcher, error)

    def notify_all(self, deltas: Sequence[Delta]) -> None:
        """Show deltas that arrived together; viewers are woken once."""
        if len(self.watchers) == 1 and isinstance(viewers := self.watchers[0], ViewerBuffers):
            viewers.on_deltas(deltas)
        else:
            for delta in deltas:
                self.notify(delta)

    def notify(self, happening: Record | Delta) -> None:
        for watcher in self.watchers:
            try:
                watcher.on_event(self._session, happening)
            except Exception as error:  # noqa: BLE001 - a watcher can never change a run
                self._dismiss(watcher, error)

    def end_run(self, summarize: Callable[[], RunSummary]) -> None:
        """Give the summary of a run to the watchers that take it."""
        taking = [each for each in self.watchers if isinstance(each, SummaryWatcher)]
        summary = summarize() if taking else None
        for watcher in taking:
            assert summary is not None
            try:
                watcher.on_run_end(self._session, summary)
            except Exception as error:  # noqa: BLE001 - a watcher can never change a run
                self._dismiss(watcher, error)

    def _dismiss(self, watcher: object, error: Exception) -> None:
        self.watchers = tuple(each for each in self.watchers if each is not watcher)
        text = f"{type(watcher).__name__} raised {locate_error(error)}"
        # guard: watcher-warning-escaped
        LOG.warning("%s and was dismissed", escape_text(text))


_running_tasks: "set[asyncio.Task[object]]" = set()
"""Strong references: an event loop holds its tasks weakly, and a run without viewers must not be collected."""


class RunHandle(Generic[T]):
    """A started run: watch it, wait for its result, cancel it."""

    def __init__(
        self,
        session: str,
        start: Callable[[RunControl], Coroutine[None, None, Result[T]]],
        cancelled: Callable[[], Coroutine[None, None, Result[T]]],
    ) -> None:
        """`start` is the run; `cancelled` tells how things stand in one that was ended from outside."""
        self.session = session
        self._start, self._read_cancelled_result = start, cancelled
        self._has_begun = self._is_cancelled = self._is_left = False
        self._control = RunControl(session)
        self._task = asyncio.create_task(self._run())
        _running_tasks.add(self._task)
        self._task.add_done_callback(self._on_done)

    @property
    def done(self) -> bool:
        return self._task.done()

    def cancel(self) -> None:
        """End the run; viewers and `result` still receive its end.  A second call does nothing."""
        if not self._is_cancelled and not self._task.done():
            self._is_cancelled = True
            if self._has_begun:
                self._task.cancel()

    async def steer(self, text: str, *, by: str = "") -> None:
        """Add a message to the run, which takes it up before its next request; it is durable at once.

        A run that was about to end continues with it.  Raises `MisuseError` if the run has ended.
        """
        if not isinstance(text, str) or not text.strip():
            raise MisuseError(f"steer takes the text of a message, not {text!r}")
        await self._control.record(Steered(message=repair_surrogates(text), by=by))

    async def pause(self, *, by: str = "") -> None:
        """Ask the run to stop as `paused` after its current step; `agent.resume` continues it."""
        reason = f"paused by {by}" if by else PAUSE_REASON
        await self._control.record(PauseRequested(reason=reason, by=by))

    async def result(self) -> Result[T]:
        """Wait for the result.  Cancelling the wait does not cancel the run."""
        await asyncio.wait((self._task,))
        return self._task.result()

    def view(self, deltas_max: int | None = DELTAS_BUFFERED_MAX) -> "RunView[T]":
        """Iterate over everything from now on, with a `FinalAnswer` last.

        At most `deltas_max` deltas are buffered for a slow viewer; None buffers all of them.
        """
        return RunView(self, self.add_viewer(deltas_max))

    def add_viewer(self, deltas_max: int | None) -> ViewerBuffer:
        return self._control.viewers.add_viewer(deltas_max)

    async def _run(self) -> Result[T]:
        self._has_begun = True
        try:
            if not self._is_cancelled:
                return await self._start(self._control)
        except asyncio.CancelledError:
            if not self._is_cancelled:
                raise
        return await self._read_cancelled_result()

    def _on_done(self, task: "asyncio.Task[Result[T]]") -> None:
        _running_tasks.discard(task)
        self._control.close()
        self._control.viewers.wake()

    def leave(self) -> None:
        """Cancel the run, which nobody watches any more; callable from every thread."""
        if self._is_left or self._task.done():
            return
        self._is_left, loop = True, self._task.get_loop()
        with suppress(RuntimeError):  # the loop was closed, and with it the run
            if asyncio._get_running_loop() is loop:
                self._task.cancel()
            else:
                loop.call_soon_threadsafe(self._task.cancel)

    async def leave_and_wait(self) -> None:
        """Cancel the run and wait for its cleanup."""
        self.leave()
        if not self._task.done():
            await asyncio.wait((self._task,))


class RunView(Generic[T]):
    """One viewer of a run, which may be slow.  Iterate over it once."""

    def __init__(self, run: RunHandle[T], buffer: ViewerBuffer) -> None:
        self._run, self._buffer = run, buffer
        self._is_finished = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StreamItem | FinalAnswer[T]:
        while not self._buffer:
            if self._is_finished:
                raise StopAsyncIteration
            if self._run.done:
                self._is_finished = True
                return FinalAnswer(result=await self._run.result())
            await self._buffer.wait_for_more()
        return self._buffer.take()


class Stream(Generic[T]):
    """A run that has not started.  Iterate over it once for deltas, events and a `FinalAnswer`, or `start` it."""

    def __init__(
        self,
        session: str,
        start: Callable[[RunControl], Coroutine[None, None, Result[T]]],
        cancelled: Callable[[], Coroutine[None, None, Result[T]]],
        output_type: OutputType[T] | None = None,
        *,
        raises: bool = False,
    ) -> None:
        """`raises`: a loop over the stream, and `result`, raise `RunStopped` for a run without an answer."""
        self.session, self.output_type, self._raises = session, output_type, raises
        self._start, self._read_cancelled_result = start, cancelled
        self._run: RunHandle[T] | None = None
        self._is_cancelled = False

    def start(self) -> RunHandle[T]:
        """Run independently of this object.  Needs a running event loop."""
        if self._run is not None:
            raise MisuseError("this stream has already started; call agent.stream() again for another run")
        self._run = RunHandle(self.session, self._start, self._read_cancelled_result)
        if self._is_cancelled:
            self._run.cancel()
        return self._run

    def cancel(self) -> None:
        """Cancel the run; the stream still yields its end."""
        self._is_cancelled = True
        if self._run is not None:
            self._run.cancel()

    async def steer(self, text: str) -> None:
        """Add a message to the run, as `RunHandle.steer` does."""
        await self._require_run().steer(text)

    async def pause(self) -> None:
        """Ask the run to stop after its current step, as `RunHandle.pause` does."""
        await self._require_run().pause()

    async def __aenter__(self) -> Self:
        """Leaving the block ends the run, and waits for its end."""
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the run, if it was started, and wait for its end."""
        if self._run is not None:
            await self._run.leave_and_wait()

    def __aiter__(self) -> "StreamIterator[T]":
        return StreamIterator(self)

    def start_once(self) -> RunHandle[T]:
        """Start the run for a loop over the stream."""
        if self._run is not None:
            raise MisuseError("a stream can be iterated once; call agent.stream() again for another run")
        return self.start()

    def leave(self) -> None:
        """End the run, if it was started, without waiting for its end."""
        if self._run is not None:
            self._run.leave()

    async def result(self) -> Result[T]:
        """Wait for the result of a run that was started or iterated over."""
        return self.check_stop(await self._require_run().result())

    def check_stop(self, result: Result[T]) -> Result[T]:
        return result.raise_for_stop() if self._raises else result

    def _require_run(self) -> RunHandle[T]:
        if self._run is None:
            raise MisuseError("this stream has not started; iterate over it, or call start()")
        return self._run

    def partial(self) -> "PartialIterator[T]":
        """Run, and yield the answer as it grows; then `await stream.result()` returns the result.

        Leaving the loop ends the run.  A slow reader skips values, never the last one.
        """
        return PartialIterator(self, self._read_partials())

    async def _read_partials(self) -> AsyncGenerator[PartialOutput[T], None]:
        run = self.start()
        buffer, latest = run.add_viewer(None), None
        tracker: PartialTracker[T] | None = None
        try:
            while True:
                while buffer:
                    # A resumed run has its type when it has read the log.
                    tracker = tracker or PartialTracker(self.output_type)
                    is_due = tracker.apply(buffer.take()) and len(buffer) < PARTIALS_BEHIND_MAX
                    partial = tracker.read() if is_due else None
                    if partial is not None and partial != latest:
                        latest = partial
                        yield partial
                if run.done:
                    break
                await buffer.wait_for_more()
            result = self.check_stop(await run.result())
            if result.done:
                yield (tracker or PartialTracker(self.output_type)).finish(result)
        finally:
            await run.leave_and_wait()


class StreamIterator(Generic[T]):
    """The loop over a stream, which owns the run: when the loop is left, this object is dropped and the run ends.

    It is no generator: Python would close one in a later turn of the event loop, when the next prompt of the session
    may have been sent.
    """

    __slots__ = ("_buffer", "_is_finished", "_items", "_result", "_run", "_stream")

    def __init__(self, stream: Stream[T]) -> None:
        self._stream, self._is_finished = stream, False
        self._run: RunHandle[T] | None = None
        self._buffer: ViewerBuffer | None = None
        self._result: Result[T] | None = None
        self._items: Iterator[StreamItem] = iter(())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StreamItem | FinalAnswer[T]:
        for item in self._items:
            return item
        if self._is_finished:
            result, self._result = self._result, None
            if result is not None:
                self._stream.check_stop(result)
            raise StopAsyncIteration
        if self._run is None or self._buffer is None:
            self._run = self._stream.start_once()
            # The owner of the run skips nothing, so its buffer is unbounded.
            self._buffer = self._run.add_viewer(None)
        run, buffer = self._run, self._buffer
        while not buffer.items:
            if run.done:
                self._is_finished, self._result = True, await run.result()
                return FinalAnswer(result=self._result)
            try:
                await buffer.wait_for_more()
            except BaseException:
                await self.aclose()
                raise
        items, buffer.items = buffer.items, []
        self._items = iter(items)
        return next(self._items)

    async def aclose(self) -> None:
        """End the run and wait for its end."""
        self._is_finished, self._items = True, iter(())
        if self._run is not None:
            await self._run.leave_and_wait()

    def __del__(self) -> None:
        if self._run is not None:
            self._run.leave()


class PartialIterator(Generic[T]):
    """The loop over the partial answers of a stream; as `StreamIterator`."""

    def __init__(self, stream: Stream[T], partials: AsyncGenerator[PartialOutput[T], None]) -> None:
        self._stream, self._partials, self._has_started = stream, partials, False

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Awaitable[PartialOutput[T]]:
        self._has_started = True
        return self._partials.__anext__()

    async def aclose(self) -> None:
        await self._partials.aclose()

    def __del__(self) -> None:
        if self._has_started:
            self._stream.leave()
