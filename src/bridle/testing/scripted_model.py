"""A model that gives scripted replies through a strict simulated provider.

    agent = Agent(scripted("Let me see.", "It is 42."))
    agent = Agent(scripted(call_reply(("add", {"a": 1, "b": 2})), "3"))

Only the replies are scripted; the wire, the rules, the signatures, the cache and the token counts are those
of the simulated provider. A script without a model uses the one named in `BRIDLE_SCRIPT_MODEL`, so a whole
suite can run against each wire in turn.

The next reply is derived from the request (from the number of model messages in it), so the same script
serves a run that is cut, resumed or replayed: there is no position to lose. A reply may also be a `Failure`;
each failure is used once, in order.
"""

import os
from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from bridle.ports.clock import Clock
from bridle.providers import load_codec
from bridle.run.model_connection import ModelConnection, find_model_by_name
from bridle.sim.responder.conversation import ConversationFacts, read_conversation
from bridle.sim.responder.conversation_summary import summarize_if_asked
from bridle.sim.responder.decision import Responder, ResponderDecision
from bridle.sim.responder.rule_based import compose_reply, respond
from bridle.sim.responder.script import parse_script
from bridle.sim.simulator import Simulator
from bridle.transports.inprocess import InProcessTransport
from bridle.values.errors import Failure, MisuseError
from bridle.values.message import Part, Reply, Stop, Text, ToolCall
from bridle.values.model import Abilities, Model, Origin
from bridle.values.request import Request
from bridle.values.usage import Usage

MODEL_VARIABLE = "BRIDLE_SCRIPT_MODEL"
MODEL_DEFAULT = "sim:"
Choose = Callable[[ConversationFacts], str | Reply]
"""Chooses the next reply of a conversation: its text, or a `Reply` with calls."""
NO_ORIGIN = Origin(family="", endpoint="", model="")
"""Placeholder: the origin is set when the reply is given."""


class ScriptedReplies:
    """The responder of a scripted connection; `requests` holds the requests as the provider decoded them."""

    def __init__(self, replies: Sequence[str | Reply | Failure], *, clock: Clock | None = None) -> None:
        self._replies = [
            reply if isinstance(reply, Reply) else text_reply(reply)
            for reply in replies
            if not isinstance(reply, Failure)
        ]
        self._failures: dict[int, list[Failure]] = {}
        reply_count = 0
        for reply in replies:
            if isinstance(reply, Failure):
                self._failures.setdefault(reply_count, []).append(reply)
            else:
                reply_count += 1
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
    """A model connection that exposes its script."""

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
    """Connect to a scripted model.

    `model` is one that the simulator serves (`sim:VENDOR/MODEL`); `abilities` replaces its abilities on our
    side only.
    """
    for reply in replies:
        if not isinstance(reply, str | Reply | Failure):
            raise MisuseError(
                f"scripted takes texts, `call_reply((tool, arguments), …)` and failures, not {reply!r}"
            )
    name = model or os.environ.get(MODEL_VARIABLE) or MODEL_DEFAULT
    found = find_model_by_name(name) if isinstance(name, str) else name
    assumed = found if abilities is None else replace(found, abilities=abilities)
    return ScriptedConnection(ScriptedReplies(replies), assumed)


def simulated(choose: Choose, *, model: str | Model = "") -> ModelConnection:
    """Connect to a simulated model whose replies a function chooses: text, or a `Reply` of `call_reply`."""
    found = find_model_by_name(model or MODEL_DEFAULT) if isinstance(model, str) else model
    return ModelConnection(
        model=found,
        codec=load_codec(found.endpoint.family),
        transport=InProcessTransport(Simulator(responder_of(choose)).answer),
    )


def responder_of(choose: Choose) -> Responder:
    """Make a responder of a simulator from a function that chooses replies.

    The function reads the conversation only, so that a resumed run gets the same replies. A prompt with
    directives (`!call`, `!say`) is played as usual, and summaries are written by the simulator.
    """

    def decide(request: Request) -> ResponderDecision:
        facts = read_conversation(request)
        if parse_script(facts.prompt) is not None or summarize_if_asked(request):
            return respond(request)
        chosen = choose(facts)
        return _place_reply(request, chosen if isinstance(chosen, Reply) else text_reply(chosen))

    return decide


def text_reply(text: str, *calls: ToolCall, stop: Stop | None = None, usage: Usage | None = None) -> Reply:
    """Make a reply with this text and these calls. `usage` replaces the provider's own count."""
    text_parts: tuple[Part, ...] = (Text(text=text),) if text else ()
    return Reply(
        parts=(*text_parts, *calls),
        stop=stop or (Stop.TOOLS if calls else Stop.DONE),
        origin=NO_ORIGIN,
        usage=usage or Usage(),
    )


def call_reply(*calls: tuple[str, Mapping[str, object]], text: str = "") -> Reply:
    """Make a reply that calls tools."""
    return text_reply(
        text,
        *(
            ToolCall(id="", name=name, arguments=msgspec.json.encode(arguments).decode())
            for name, arguments in calls
        ),
    )


def _place_reply(request: Request, reply: Reply) -> ResponderDecision:
    """Place the reply at this point of the conversation; calls without ids get new ones."""
    composed = compose_reply(request, list(reply.parts))
    parts = tuple(
        written if isinstance(written, ToolCall) and written.wire_id else placed
        for written, placed in zip(reply.parts, composed.parts, strict=True)
    )
    composed = replace(
        composed, parts=parts, stop=reply.stop, stop_detail=reply.stop_detail, id=reply.id or composed.id
    )
    return ResponderDecision(reply=composed, usage=reply.usage if reply.usage != Usage() else None)
