"""A program in the place of a model: its replies are the tool calls that it makes, and in the end what it printed.

A request contains the whole conversation: the code, the calls so far and their results.  So the program can be run
again from its start at any time, with its first calls answered from the conversation.  A live process only saves that
work.  A program that does not make the recorded calls again is ended, and none of them runs a second time.
"""

from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import msgspec

from bridle.ports.codec import HttpReply, HttpRequest
from bridle.ports.sandbox import Sandbox
from bridle.ports.transport import OutgoingRequest
from bridle.providers import load_codec
from bridle.run.model_connection import ModelConnection
from bridle.tools.code_mode.functions import ProgramFunction
from bridle.tools.code_mode.process import ProgramMessage, ProgramProcess, ProgramStopped
from bridle.transports.inprocess import InProcessTransport
from bridle.values.message import Media, Message, Part, Reply, Stop, Text, ToolCall, ToolResult
from bridle.values.model import Abilities, Endpoint, Model, make_origin
from bridle.values.text import repair_surrogates
from bridle.values.usage import Price, Rates

from .code_mode import CodeMode

FREE = Price(
    tiers=(
        Rates(
            input=Decimal(0),
            output=Decimal(0),
            cache_read=Decimal(0),
            cache_write=Decimal(0),
            cache_write_1h=None,
        ),
    )
)
PROGRAM_MODEL = Model(
    id="python",
    endpoint=Endpoint(name="program", family="scripted", auth="none", is_program=True),
    abilities=Abilities(context_tokens=1_000_000_000, output_tokens=1_000_000),
    price=FREE,
)
NO_OUTPUT = "[the program printed nothing]"
PROBLEM_HEADING = "[the program failed]"
# not from outside: our own text, shown to a person or a model
TRACEBACK_CHARACTERS_MAX = 4_000
ARGUMENT_CHARACTERS_SHOWN = 200


class RecordedBatch(NamedTuple):
    """Calls that a program made at the same time, with their results."""

    calls: tuple[tuple[str, str], ...]
    """Name and arguments of each."""
    results: tuple[ToolResult, ...]


class ProgramModel:
    """Answers the requests of one program's session.  `close` must be awaited in the end."""

    def __init__(
        self,
        mode: CodeMode,
        functions: Sequence[ProgramFunction],
        sandbox: Sandbox | None,
        folder: Path,
        on_output: Callable[[bytes], None],
    ) -> None:
        self._mode, self._functions = mode, functions
        self._tools = frozenset(function.tool for function in functions)
        self._sandbox, self._folder, self._on_output = sandbox, folder, on_output
        self._process: ProgramProcess | None = None
        self._message = ProgramMessage()
        """The latest message of the process."""
        self._answered, self._seconds = 0, 0.0
        """Batches whose results the process has, and the time that it has taken."""
        self.connection = ModelConnection(
            model=PROGRAM_MODEL,
            codec=load_codec(PROGRAM_MODEL.endpoint.family),
            transport=InProcessTransport(self.answer),
        )

    async def answer(self, outgoing: OutgoingRequest) -> HttpReply:
        request = self.connection.codec.decode_request(HttpRequest(path="", body=outgoing.body))
        reply = await self.make_reply(request.messages)
        headers = (("content-type", "application/json"),)
        return HttpReply(status=200, headers=headers, frames=(msgspec.json.encode(reply),))

    async def close(self) -> str:
        """End the process; returns what it has printed.  If it is cancelled, a second call ends the process."""
        process = self._process
        if process is None:
            return ""
        output = await process.stop()
        self._process = None
        return repair_surrogates(output)

    async def make_reply(self, messages: Sequence[Message]) -> Reply:
        """The reply that follows a conversation."""
        recorded = read_batches(messages)
        try:
            if self._process is None or len(recorded) < self._answered:
                await self._start(messages[0].text)
            for batch in recorded[self._answered :]:
                self._check_same(batch, recorded)
                await self._give_results(batch.results)
            return await self._describe_message(sum(len(batch.calls) for batch in recorded))
        except (ProgramStopped, OSError) as error:
            return await self._end(f"The harness ended the program: {error}.")

    async def _start(self, code: str) -> None:
        await self.close()
        self._answered, self._seconds = 0, 0.0
        self._process = ProgramProcess(
            self._sandbox, self._folder, self._mode.output_bytes_max, self._on_output
        )
        await self._process.start(code, self._functions)
        await self._receive()

    async def _give_results(self, results: Sequence[ToolResult]) -> None:
        assert self._process is not None
        described = [{"text": describe_result(result), "outcome": result.outcome} for result in results]
        self._process.send({"results": described})
        self._answered += 1
        await self._receive()

    async def _receive(self) -> None:
        assert self._process is not None
        began = monotonic()
        try:
            self._message = await self._process.receive(max(0.0, self._mode.seconds - self._seconds))
        finally:
            self._seconds += monotonic() - began
        for call in self._message.calls:
            # guard: program-tool-allowed
            if call.name not in self._tools or not bytes(call.arguments).startswith(b"{"):
                raise ProgramStopped("it asked for a call that no function of it can make")

    def _check_same(self, batch: RecordedBatch, recorded: Sequence[RecordedBatch]) -> None:
        """Raise `ProgramStopped` unless the program asks for the recorded calls."""
        now = tuple(list_calls(self._message))
        # guard: program-repeats-calls
        if now == batch.calls:
            return
        pairs = zip((*now, *[("nothing", "")] * len(batch.calls)), batch.calls, strict=False)
        differing = next(((new, old) for new, old in pairs if new != old), (now[-1], ("nothing", "")))
        made = [call for each in recorded for call in each.calls]
        new, old, last = map(_show_call, (*differing, made[-1]))
        raise ProgramStopped(
            f"it was interrupted and run again, and called {new} where it had called {old} before. Nothing ran twice."
            f" Calls that it made before the interruption, which are recorded and may have taken effect: {len(made)};"
            f" the last: {last}. Look at the current state before you write another program, and do not let calls"
            " depend on the time or on random values"
        )

    async def _describe_message(self, made: int) -> Reply:
        message = self._message
        if message.failed:
            return await self._end(repair_surrogates(message.failed[-TRACEBACK_CHARACTERS_MAX:]))
        if not message.calls:
            return await self._end("")
        # guard: program-call-limit
        if made + len(message.calls) > self._mode.calls_max:
            raise ProgramStopped(f"it made more than {self._mode.calls_max} tool calls")
        calls = (ToolCall(id="", name=name, arguments=given) for name, given in list_calls(message))
        return _make_reply(tuple(calls), Stop.TOOLS)

    async def _end(self, problem: str) -> Reply:
        output = (await self.close()).strip()
        if not problem:
            return _make_reply((Text(text=output or NO_OUTPUT),), Stop.DONE)
        printed = (Text(text=f"{output}\n"),) if output else ()
        return _make_reply((*printed, Text(text=f"{PROBLEM_HEADING}\n{problem}")), Stop.OTHER)


def split_problem(text: Sequence[Text]) -> tuple[str, str]:
    """The output of a failed program and its problem, from the text of its last reply."""
    *printed, failure = (part.text for part in text)
    return "".join(printed), failure.removeprefix(f"{PROBLEM_HEADING}\n")


def _show_call(call: tuple[str, str]) -> str:
    name, arguments = call
    return f"{name}({arguments[:ARGUMENT_CHARACTERS_SHOWN]})"


def _make_reply(parts: tuple[Part, ...], stop: Stop) -> Reply:
    return Reply(parts=parts, stop=stop, origin=make_origin(PROGRAM_MODEL))


def list_calls(message: ProgramMessage) -> Sequence[tuple[str, str]]:
    return [(call.name, bytes(call.arguments).decode()) for call in message.calls]


def read_batches(messages: Sequence[Message]) -> list[RecordedBatch]:
    """The batches of calls in a conversation, in order."""
    results = {result.call_id: result for message in messages for result in message.results}
    batches = [message.calls for message in messages if message.calls]
    return [
        RecordedBatch(
            tuple((call.name, call.arguments) for call in calls), tuple(results[call.id] for call in calls)
        )
        for calls in batches
    ]


def describe_result(result: ToolResult) -> str:
    """The text of a result; a program cannot see media."""
    media = (f"[{part.media_type}]" for part in result.parts if isinstance(part, Media))
    return "\n".join(filter(None, (result.text, *media)))
