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

from bridle.ports.clock import Clock
from bridle.ports.tool import Json
from bridle.providers import load_codec
from bridle.run.model_connection import ModelConnection, find_model_by_name
from bridle.sim.responder.decision import ResponderDecision
from bridle.sim.responder.rule_based import compose_reply
from bridle.sim.simulator import Simulator
from bridle.transports.inprocess import InProcessTransport
from bridle.values.errors import Failure, MisuseError
from bridle.values.message import Part, Reply, Stop, Text, ToolCall
from bridle.values.model import Abilities, Model, Origin
from bridle.values.request import Request
from bridle.values.usage import Usage

MODEL_VARIABLE = "BRIDLE_SCRIPT_MODEL"
MODEL_DEFAULT = "sim:"
NO_ORIGIN = Origin(family="", endpoint="", model="")
"""Who says it is settled when it is said."""


class ScriptedReplies:
    """The mind of a scripted line; `requests` holds what it was asked, as its provider read it."""

    def __init__(self, replies: Sequence[str | Reply | Failure], *, clock: Clock | None = None) -> None:
        self._replies = [
            reply if isinstance(reply, Reply) else text_reply(reply)
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

    def _decide(self, request: Request) -> ResponderDecision | Failure:
        self.requests.append(request)
        turn = sum(message.role == "assistant" for message in request.messages)
        if self._failures.get(turn):
            return self._failures[turn].pop(0)
        if turn >= len(self._replies):
            raise MisuseError(f"the script has {len(self._replies)} replies and was asked for one more")
        return _place_reply(request, self._replies[turn])


class ScriptedConnection(ModelConnection):
    """A line with its script in reach."""

    script: ScriptedReplies

    def __init__(self, script: ScriptedReplies, model: Model) -> None:
        super().__init__(
            model=model,
            codec=load_codec(model.endpoint.family),
            transport=InProcessTransport(script.simulator.answer),
        )
        object.__setattr__(self, "script", script)


def scripted(
    *replies: str | Reply | Failure, model: str | Model = "", abilities: Abilities | None = None
) -> ScriptedConnection:
    """`model` is one the simulator plays (`sim:VENDOR/MODEL`); `abilities` are what we believe of it."""
    named = model or os.environ.get(MODEL_VARIABLE) or MODEL_DEFAULT
    found = find_model_by_name(named) if isinstance(named, str) else named
    believed = found if abilities is None else replace(found, abilities=abilities)
    return ScriptedConnection(ScriptedReplies(replies), believed)


def text_reply(text: str, *calls: ToolCall, stop: Stop | None = None, usage: Usage | None = None) -> Reply:
    """`usage` is what the provider says it counted; without it, it counts."""
    words: tuple[Part, ...] = (Text(text=text),) if text else ()
    return Reply(
        parts=(*words, *calls),
        stop=stop or (Stop.TOOLS if calls else Stop.DONE),
        origin=NO_ORIGIN,
        usage=usage or Usage(),
    )


def call_reply(*wanted: tuple[str, dict[str, Json]], text: str = "") -> Reply:
    """A reply that asks for tools."""
    return text_reply(
        text,
        *(
            ToolCall(id="", name=name, arguments=msgspec.json.encode(arguments).decode())
            for name, arguments in wanted
        ),
    )


def _place_reply(request: Request, reply: Reply) -> ResponderDecision:
    """The reply as it is said here and now; ids that the script does not name are this point's own."""
    said = compose_reply(request, list(reply.parts))
    parts = tuple(
        written if isinstance(written, ToolCall) and written.wire_id else placed
        for written, placed in zip(reply.parts, said.parts, strict=True)
    )
    said = replace(said, parts=parts, stop=reply.stop, stop_detail=reply.stop_detail, id=reply.id or said.id)
    return ResponderDecision(reply=said, usage=reply.usage if reply.usage != Usage() else None)
