"""Requests of one wire family, for the checks that every encoder must pass (`test_kit_encode.py`).

A family lists its data in `ENCODE` of `<family>_requests.py`.  Messages are made of few words.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bridle.ports.codec import Codec
from bridle.providers import load_codec
from bridle.values.message import Media, Message, Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from bridle.values.model import Model, Origin
from bridle.values.request import Extra, OutputSpec, Request, Sampling, Thinking, ToolChoice, ToolSpec

JsonObject = dict[str, Any]
FOREIGN = Origin(family="elsewhere", endpoint="elsewhere", model="other")


def make_parts(parts):
    return tuple(Text(text=part) if isinstance(part, str) else part for part in parts)


def user(*parts, origin=None):
    return Message(role="user", parts=make_parts(parts), origin=origin)


def results(*parts, origin=None):
    return Message(role="tool", parts=parts, origin=origin)


def call(call_id, wire_id="", name="look", arguments="{}", **more):
    return ToolCall(id=call_id, name=name, arguments=arguments, wire_id=wire_id, **more)


def answer(call_id, *parts, **more):
    return ToolResult(call_id=call_id, parts=make_parts(parts), **more)


class Talk:
    """Conversations with one model, and what of them is sent."""

    def __init__(self, model: Model, at: str, codec: Codec | None = None) -> None:
        self.model, self.at = model, at
        self.codec = codec or load_codec(model.endpoint.family)
        self.own = Origin(family=model.endpoint.family, endpoint=model.endpoint.name, model=model.id)

    def ask(self, *messages: Message, **fields) -> Request:
        return Request(model=fields.pop("model", self.model), messages=messages, **fields)

    def sent(self, request: Request) -> JsonObject:
        return json.loads(self.codec.encode(request).body)

    def written(self, *messages: Message, **fields) -> list:
        """Return the messages as they are sent."""
        return self.sent(self.ask(*messages, **fields))[self.at]

    def assistant(self, *parts: Part | str, origin: Origin | str | None = "own", **more) -> Message:
        told = self.own if origin == "own" else origin
        return Message(role="assistant", parts=make_parts(parts), origin=told, **more)  # type: ignore[arg-type]


def ask_everything(talk, **changes):
    """Return a request in which every setting is given."""
    fields = {
        "system": (Text(text="Be brief."), Text(text=" ")),
        "tools": (ToolSpec(name="look", description="Looks."),),
        "tool_choice": ToolChoice(mode="any", parallel=False),
        "max_tokens": 90,
        "thinking": Thinking(mode="adaptive", effort="low", display="summarized"),
        "output": OutputSpec(name="an answer", parameters='{"type": "object"}', description="An answer."),
        "sampling": Sampling(temperature=0.5, top_p=0.9, top_k=3, stop_sequences=("END",)),
    }
    return talk.ask(user("hi"), **fields | changes)


@dataclass(frozen=True, kw_only=True)
class EncodeCases:
    talk: Talk
    full: Request
    """A request with everything in it."""
    head: JsonObject
    """The first members of its body, which stay the same from step to step; None stands for any value."""
    tail: JsonObject
    """All the other members."""
    headers: JsonObject
    """Headers beside the content type."""
    native: str
    """A tool of the provider, spelled with two blanks."""
    choices: Sequence[tuple[ToolChoice, Any]]
    """Choices of tools, and what is sent for them."""
    path: str
    """Where requests are sent to."""
    other_paths: Sequence[str]
    """Paths that ask for something else."""
    no_requests: Sequence[bytes]
    """Bodies that the provider refuses."""
    read_choice: Callable[[JsonObject], Any]
    extras: Sequence[Extra]
    """Extras that the request sets itself, with `max_tokens` given."""
    read_calls: Callable[[JsonObject], list[tuple[str | None, str, Any]]]
    """Id, name and arguments of the calls in a body."""
    read_results: Callable[[JsonObject], list[tuple[str | None, str]]]
    """Id and text of the results in a body."""
    ids: Sequence[str | None]
    """Ids under which the calls of `test_ids_are_the_providers_where_they_are_legal_and_new` are sent."""
    legal_name: str
    """A pattern of names that the provider accepts."""
    is_wrapped: bool = True
    """True if arguments that are no object go out in an object."""
    reasoning: Sequence[tuple[str, Origin, Sequence[Part], Sequence[Any]]]
    """Policy, origin and parts of a reply, and its parts as they are sent."""
    read_turn: Callable[[list], list]
    """The parts of the reply among the messages."""
    media: Sequence[tuple[Media, Any]]
    """Media, and the blocks that are sent for them; a string is part of the text that stands for one."""
    read_media: Callable[[list], list]
    outcomes: Sequence[tuple[ToolResult, str]]
    """Results of the call `c1`, and the text that is sent."""
    are_outcomes_read: bool = False
    """True if the outcome of a call can be read from its text."""
    complain: Callable[[JsonObject], Any] = lambda body: ()
    """Rules of the wire that a body breaks."""


TEXTS = ("", " \n", "Hi", "word", "a\ud83d", "[error] no", "x" * 50)
PNG = Media(kind="image", media_type="image/png", data="iVBORw0KGgo=")


def make_line(random, own):
    """Return messages as careless importers, crashed runs and other models leave them."""
    origins = (own, own, Origin(family=own.family, endpoint="there", model="other"), FOREIGN, None)
    calls, line = ["c9"], []
    for number in range(random.randint(0, 9)):
        role = random.choice(("user", "assistant", "tool", "user", "assistant", "system"))
        origin = random.choice(origins) if role == "assistant" else None
        parts: Any = []
        for place in range(random.randint(0, 4)):
            text = random.choice(TEXTS)
            match random.randrange(8):
                case 0 | 1:
                    native = random.choice((None, None, "{}")) if own.family == "openai_chat" else None
                    parts.append(Text(text=text, native=native))
                case 2:
                    parts.append(random.choice((Reasoning(text=text), Reasoning(text=text, signature="sig"),
                                                Reasoning(signature="YmxvYg==", redacted=True))))  # fmt: skip
                case 3 | 4 if role == "assistant":
                    wire_id = random.choice(("", "t1", "t2", f"t{number}", "no way", "x" * 99))
                    calls.append(random.choice((f"c{number}_{place}", f"c{number}_{place}", "c0")))
                    arguments = random.choice(("{}", "", '{"a":', '{"a":1}'))
                    name = random.choice(("look", "", "a.b" * 40))
                    parts.append(call(calls[-1], wire_id, name, arguments))
                case 5 if role != "assistant":
                    inner = random.choice(((), ("x",), (" ",), (PNG,), ("a", PNG)))
                    outcome = random.choice(("ok", "ok", "error", "timeout"))
                    parts.append(answer(random.choice(calls), *inner, outcome=outcome))
                case 6 if origin is not own:
                    name = random.choice(("", "a.b", "a  b", "ü"))
                    document = Media(kind="document", media_type="text/plain", data="aGk=", name=name)
                    parts.append(random.choice((document, PNG)))
                case 7:
                    parts.append(Opaque(kind="new", native='{"type":"new"}'))
        line.append(Message(role=role, parts=tuple(parts), id=f"m{number}", origin=origin))
    return line
