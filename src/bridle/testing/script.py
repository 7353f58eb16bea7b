"""A model that says what it is told to, at a provider that checks what it is asked.

    agent = Agent(scripted("Let me see.", "It is 42."))
    agent = Agent(scripted(calls(("add", {"a": 1, "b": 2})), "3"))

The words are yours and everything else is a strict simulated provider: its wire, its rules, its seals, its
cache and its counting of tokens.  A script that names no model is played by the one that
`BRIDLE_SCRIPT_MODEL` names, so that a whole suite can be run against each wire in turn.

Which reply comes next is read off the request (how often the model has spoken in it),
so the same script serves a run that is cut, resumed or replayed: there is no position
to lose.  A reply may also be a `Failure`; failures are used up in order, once each.
"""

import os
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from ..ports.clock import Clock
from ..ports.tool import Json
from ..providers import load
from ..run.line import Line, locate
from ..sim.brain import composed
from ..sim.simulator import Simulator
from ..sim.turn import Turn
from ..transports.inprocess import InProcessTransport
from ..values.errors import Failure, MisuseError
from ..values.message import Reply, Stop
from ..values.model import Abilities, Model, Origin
from ..values.parts import Part, Text, ToolCall
from ..values.request import Request
from ..values.usage import Usage

MODEL = "BRIDLE_SCRIPT_MODEL"
MODEL_DEFAULT = "sim:"
NOBODY = Origin(family="", endpoint="", model="")
"""Who says it is settled when it is said."""


class Script:
    """The mind of a scripted line; `requests` holds what it was asked, as its provider read it."""

    def __init__(self, replies: Sequence[str | Reply | Failure], *, clock: Clock | None = None) -> None:
        self._replies = [
            reply if isinstance(reply, Reply) else says(reply)
            for reply in replies
            if not isinstance(reply, Failure)
        ]
        self._failures: dict[int, list[Failure]] = {}
        said = 0
        for reply in replies:
            if isinstance(reply, Failure):
                self._failures.setdefault(said, []).append(reply)
            else:
                said += 1
        self.requests: list[Request] = []
        self.simulator = Simulator(self._decide, clock=clock)

    def _decide(self, request: Request) -> Turn | Failure:
        self.requests.append(request)
        turn = sum(message.role == "assistant" for message in request.messages)
        if self._failures.get(turn):
            return self._failures[turn].pop(0)
        if turn >= len(self._replies):
            raise MisuseError(f"the script has {len(self._replies)} replies and was asked for one more")
        return _played(request, self._replies[turn])


class ScriptedLine(Line):
    """A line with its script in reach."""

    script: Script

    def __init__(self, script: Script, model: Model) -> None:
        super().__init__(
            model=model,
            codec=load(model.endpoint.family),
            transport=InProcessTransport(script.simulator.answer),
        )
        object.__setattr__(self, "script", script)


def scripted(
    *replies: str | Reply | Failure, model: str | Model = "", abilities: Abilities | None = None
) -> ScriptedLine:
    """`model` is one the simulator plays (`sim:VENDOR/MODEL`); `abilities` are what we believe of it."""
    named = model or os.environ.get(MODEL) or MODEL_DEFAULT
    found = locate(named) if isinstance(named, str) else named
    believed = found if abilities is None else replace(found, abilities=abilities)
    return ScriptedLine(Script(replies), believed)


def says(text: str, *calls: ToolCall, stop: Stop | None = None, usage: Usage | None = None) -> Reply:
    """`usage` is what the provider says it counted; without it, it counts."""
    words: tuple[Part, ...] = (Text(text=text),) if text else ()
    return Reply(
        parts=(*words, *calls),
        stop=stop or (Stop.TOOLS if calls else Stop.DONE),
        origin=NOBODY,
        usage=usage or Usage(),
    )


def calls(*wanted: tuple[str, dict[str, Json]], text: str = "") -> Reply:
    """A reply that asks for tools."""
    return says(
        text,
        *(
            ToolCall(id="", name=name, arguments=msgspec.json.encode(arguments).decode())
            for name, arguments in wanted
        ),
    )


def _played(request: Request, reply: Reply) -> Turn:
    """The reply as it is said here and now; ids that the script does not name are this point's own."""
    said = composed(request, list(reply.parts))
    parts = tuple(
        written if isinstance(written, ToolCall) and written.wire_id else placed
        for written, placed in zip(reply.parts, said.parts, strict=True)
    )
    said = replace(said, parts=parts, stop=reply.stop, stop_detail=reply.stop_detail, id=reply.id or said.id)
    return Turn(reply=said, usage=reply.usage if reply.usage != Usage() else None)
