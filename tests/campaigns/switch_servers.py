"""Stand-ins for the providers of every wire family, strict about what they are sent.

A `Server` reads each request, has it judged by `family_rules`, and compares the turns in it that were its
own with what it said: they must come back value-equal.  It answers from a small script through the real
codec, with reasoning that is signed the way its family does it, the same tool called twice at once, and
words at the end.  Every secret it hands out is unlike any other, so one that turns up where it does not
belong is found by looking for its letters.
"""

import json
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from bridle.ports.codec import Codec, HttpReply, HttpRequest
from bridle.ports.transport import OutgoingRequest
from bridle.providers import load_codec
from bridle.run.model_connection import ModelConnection
from bridle.sim.families import find_family, list_rules
from bridle.sim.rules.engine import RawRequest
from bridle.sim.rules.profiles import ALTERNATION, COMPATIBLE, FIRST_PARTY, LOCAL, MUST_ECHO, STRIP
from bridle.testing.conformance.codec_samples import PIXEL_PNG
from bridle.transports.inprocess import InProcessTransport
from bridle.values.message import Part, Reasoning, Reply, Stop, Text, ToolCall
from bridle.values.model import Abilities, Endpoint, Model, Origin, ReasoningPolicy
from bridle.values.usage import Usage
from tests.sim.rules.family_rules import Block, Demands, Handed, load_body, violations

STEPS = 3
"""Replies to one prompt: several calls at once, one more call, words."""
MODEL = "model-1"
ABLE = Abilities(thinking=("adaptive",), sampling=False)


@dataclass(frozen=True, kw_only=True)
class Profile:
    name: str
    family: str
    reasoning: ReasoningPolicy
    demands: Demands
    dialect: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    abilities: Abilities = ABLE
    manners: tuple[str, ...] = (FIRST_PARTY,)
    """The simulator's profiles whose rules hold here."""

    def endpoint(self, name: str) -> Endpoint:
        return Endpoint(
            name=name,
            family=self.family,
            auth="none",
            headers=self.headers,
            reasoning=self.reasoning,
            dialect=self.dialect,
        )


PROFILES = (
    Profile(
        name="anthropic",
        family="anthropic",
        reasoning="signed",
        demands=Demands(),
        headers=(("anthropic-version", "2026-10-21"),),
        abilities=Abilities(
            thinking=("adaptive",),
            sampling=False,
            forced_tools=False,
            cache_marks=4,
            automatic_cache=True,
        ),
    ),
    Profile(name="responses", family="openai_responses", reasoning="signed", demands=Demands()),
    Profile(
        name="chat",
        family="openai_chat",
        reasoning="may_echo",
        demands=Demands(signed=False),
        manners=(FIRST_PARTY, COMPATIBLE, LOCAL),
    ),
    Profile(name="gemini", family="gemini", reasoning="signed", demands=Demands()),
    Profile(
        name="must-echo",
        family="openai_chat",
        reasoning="must_echo",
        demands=Demands(signed=False, must_echo=True),
        manners=(MUST_ECHO,),
    ),
    Profile(
        name="strict",
        family="openai_chat",
        reasoning="strip",
        demands=Demands(signed=False, strip=True, alternates=True),
        dialect='{"alternates": true}',
        manners=(FIRST_PARTY, STRIP, ALTERNATION, LOCAL),
    ),
    Profile(name="bedrock", family="bedrock_converse", reasoning="signed", demands=Demands()),
)


@dataclass
class Server:
    profile: Profile
    name: str
    problems: list[str] = field(default_factory=list)
    handed: Handed = field(default_factory=Handed)
    secrets: set[str] = field(default_factory=set)
    own_turns: list[Any] = field(default_factory=list)
    """Everything it said, in the form in which it must come back."""
    bodies: list[Block] = field(default_factory=list)
    others: "list[Server]" = field(default_factory=list)

    def __post_init__(self) -> None:
        self.codec: Codec = load_codec(self.profile.family)
        self.model = Model(
            id=MODEL, endpoint=self.profile.endpoint(self.name), abilities=self.profile.abilities
        )

    def line(self) -> ModelConnection:
        return ModelConnection(model=self.model, codec=self.codec, transport=InProcessTransport(self.answer))

    async def answer(self, outgoing: OutgoingRequest) -> HttpReply:
        body = load_body(outgoing.body)
        self.bodies.append(body)
        where = f"{self.name}, request {len(self.bodies)}"
        wrong = violations(
            self.profile.family,
            body,
            headers=dict(outgoing.headers),
            sent_before=self.handed,
            demands=self.profile.demands,
            abilities=self.profile.abilities,
        )
        wrong += self._opinions(outgoing, body)
        wrong += self._leaks(outgoing.body)
        if not has_in_order(turns_in(self.profile.family, body), self.own_turns):
            wrong.append("what this server said did not come back as it was")
        wrong += find_mispaired_results(self.profile.family, body)
        if outgoing.body.count(PIXEL_PNG.encode()) != outgoing.body.count(b"saw up"):
            wrong.append("not every picture arrived")
        self.problems += [f"{where}: {what}" for what in wrong]
        asked = self.codec.decode_request(
            HttpRequest(path=outgoing.url, body=outgoing.body, headers=outgoing.headers)
        )
        reply = self.reply(len(self.own_turns))
        whole = load_body(b"".join(find_family(self.codec.family).encode_reply(reply, stream=False).frames))
        self.own_turns.append(to_wire_reply(self.profile, whole))
        return find_family(self.codec.family).encode_reply(reply, stream=asked.stream)

    def _opinions(self, outgoing: OutgoingRequest, body: Block) -> list[str]:
        """What the simulator's own tables say."""
        asked = RawRequest(
            path=outgoing.url,
            headers={name.lower(): value for name, value in outgoing.headers},
            body=body,
            size=len(outgoing.body),
            abilities=self.profile.abilities,
        )
        return [
            f"simulator, {manners}: {rule.id}: {rule.wording.format(**found)}"
            for manners in self.profile.manners
            for rule in list_rules(self.profile.family, manners)
            if (found := rule.find(asked)) is not None
        ]

    def _leaks(self, body: bytes) -> list[str]:
        """What another endpoint made for itself; within one family ids of calls, which prove nothing, pass."""
        return [
            f"a secret of {other.name}: {secret}"
            for other in self.others
            for secret in other.secrets
            if secret.encode() in body
            if secret not in other.handed.call_ids or other.profile.family != self.profile.family
        ]

    def reply(self, number: int) -> Reply:
        step = number % STEPS
        calls = ((("look", "left"), ("look", "right"), ("photo", "up")), (("look", "down"),), ())[step]
        parts = _PARTS[self.profile.name](self, number, calls)
        return Reply(
            parts=parts,
            stop=Stop.TOOLS if calls else Stop.DONE,
            origin=Origin(family=self.profile.family, endpoint=self.name, model=MODEL),
            usage=Usage(input=10, output=5, reasoning=2),
            id=self.secret("reply", number, known=False),
        )

    def secret(self, kind: str, number: Any, *, prefix: str = "", known: bool = True) -> str:
        made = prefix + sha256(f"{self.name} {kind} {number}".encode()).hexdigest()[:24]
        if known:
            self.secrets.add(made)
        return made

    def proof(self, kind: str, number: int, of: Any) -> str:
        made = self.secret(kind, number)
        self.handed.proofs[made] = of
        return made

    def call_id(self, number: int, at: int, prefix: str) -> str:
        made = self.secret("call", (number, at), prefix=prefix)
        self.handed.call_ids.add(made)
        return made

    def item(self, kind: str, number: Any) -> str:
        made = self.secret(kind, number, prefix=f"{kind}_")
        self.handed.item_ids.add(made)
        return made


Calls = tuple[tuple[str, str], ...]


def _make_thought(server: Server, number: int) -> str:
    words = f"{server.name} thinks  {number} 🌡️.\n"
    server.handed.thoughts.add(words)
    return words


def _words(server: Server, number: int) -> str:
    return f'{server.name} says "{number}".'


def _arguments(where: str) -> str:
    return json.dumps({"where": where})


def _blocks(server: Server, number: int, calls: Calls) -> tuple[Part, ...]:
    """Signed and sealed thoughts, words, calls."""
    words = _make_thought(server, number)
    sealed = Reasoning(signature=server.proof("sealed", number, ""), redacted=True)
    return (
        Reasoning(text=words, signature=server.proof("signed", number, words)),
        *((sealed,) if number % 2 else ()),
        Text(text=_words(server, number)),
        *(
            ToolCall(
                id="", name=name, arguments=_arguments(where), wire_id=server.call_id(number, at, "toolu_")
            )
            for at, (name, where) in enumerate(calls)
        ),
    )


def _items(server: Server, number: int, calls: Calls) -> tuple[Part, ...]:
    words = _make_thought(server, number)
    thought, message = server.item("rs", number), server.item("msg", number)
    server.handed.led_to[thought] = message
    beside = {"message": {"id": message, "status": "completed", "phase": "commentary"}}
    return (
        Reasoning(
            text=words,
            signature=server.proof("blob", number, words),
            native=json.dumps({"id": thought}),
        ),
        Text(text=_words(server, number), native=json.dumps(beside)),
        *(
            ToolCall(
                id="",
                name=name,
                arguments=_arguments(where),
                wire_id=server.call_id(number, at, "call_"),
                native=json.dumps({"id": server.item("fc", (number, at)), "status": "completed"}),
            )
            for at, (name, where) in enumerate(calls)
        ),
    )


def _details(server: Server, number: int, calls: Calls) -> tuple[Part, ...]:
    words = _make_thought(server, number)
    text = {"detail": {"type": "reasoning.text", "format": "v1", "index": 0}}
    sealed = {"detail": {"type": "reasoning.encrypted", "id": "r", "index": 1}}
    return (
        Reasoning(text=words, signature=server.proof("signed", number, words), native=json.dumps(text)),
        Reasoning(signature=server.proof("sealed", number, ""), redacted=True, native=json.dumps(sealed)),
        Text(text=_words(server, number)),
        *_chat_calls(server, number, calls),
    )


def _make_plain_parts(server: Server, number: int, calls: Calls) -> tuple[Part, ...]:
    return (
        Reasoning(text=_make_thought(server, number)),
        Text(text=_words(server, number)),
        *_chat_calls(server, number, calls),
    )


def _chat_calls(server: Server, number: int, calls: Calls) -> tuple[Part, ...]:
    return tuple(
        ToolCall(id="", name=name, arguments=_arguments(where), wire_id=server.call_id(number, at, "call_"))
        for at, (name, where) in enumerate(calls)
    )


def _parts(server: Server, number: int, calls: Calls) -> tuple[Part, ...]:
    """A thought shown, words, calls of which the first is signed; without calls an empty part is."""
    parts: list[Part] = [Reasoning(text=_make_thought(server, number)), Text(text=_words(server, number))]
    for at, (name, where) in enumerate(calls):
        # Some answers have ids on their calls and some have none.
        wire_id = server.call_id(number, at, "fc") if number % 2 else ""
        native = None
        if at == 0:
            made = {"name": name, "args": {"where": where}}
            native = json.dumps({"thoughtSignature": server.proof("signature", number, made)})
        parts.append(ToolCall(id="", name=name, arguments=_arguments(where), wire_id=wire_id, native=native))
    if not calls:
        proof = server.proof("signature", number, "")
        parts.append(Text(text="", native=json.dumps({"thoughtSignature": proof})))
    return tuple(parts)


_PARTS = {
    "anthropic": _blocks,
    "bedrock": _blocks,
    "responses": _items,
    "chat": _details,
    "must-echo": _make_plain_parts,
    "strict": _make_plain_parts,
    "gemini": _parts,
}


def to_wire_reply(profile: Profile, whole: Block) -> Any:
    """A reply in the form in which it is to come back."""
    match profile.family:
        case "anthropic":
            return whole["content"]
        case "openai_responses":
            return whole["output"]
        case "gemini":
            return whole["candidates"][0]["content"]["parts"]
        case "bedrock_converse":
            return whole["output"]["message"]["content"]
    message = whole["choices"][0]["message"]
    hidden = ("reasoning_content",) if profile.demands.strip else ()
    return {name: value for name, value in message.items() if name not in hidden}


def turns_in(family: str, body: Block) -> list[Any]:
    match family:
        case "anthropic" | "bedrock_converse":
            return [message["content"] for message in body["messages"] if message["role"] == "assistant"]
        case "gemini":
            return [content["parts"] for content in body["contents"] if content["role"] == "model"]
        case "openai_chat":
            return [_plainest(message) for message in body["messages"] if message["role"] == "assistant"]
    turns: list[list[Block]] = [[]]
    for item in body["input"]:
        if item.get("role", "assistant") == "assistant" and item["type"] != "function_call_output":
            turns[-1].append(item)
        elif turns[-1]:
            turns.append([])
    return turns


def find_mispaired_results(family: str, body: Block) -> list[str]:
    """Results that stand where another call's result belongs."""
    asked, told = _calls_and_results(family, body)
    return [
        f"the result of {where} is {told.get(id_)}"
        for id_, where in asked.items()
        if f"saw {where}" not in json.dumps(told.get(id_))
    ]


def _calls_and_results(family: str, body: Block) -> tuple[dict[Any, str], dict[Any, Any]]:
    """What each call asked for and what came of it, by the id that pairs them."""
    asked: dict[Any, str] = {}
    told: dict[Any, Any] = {}
    match family:
        case "anthropic" | "bedrock_converse":
            for block in (block for message in body["messages"] for block in message["content"]):
                call = block.get("toolUse", block)
                result = block.get("toolResult", block)
                if "input" in call:
                    asked[call.get("id") or call["toolUseId"]] = call["input"]["where"]
                elif id_ := result.get("tool_use_id") or result.get("toolUseId"):
                    told[id_] = result["content"]
        case "openai_responses":
            for item in body["input"]:
                if item["type"] == "function_call":
                    asked[item["call_id"]] = json.loads(item["arguments"])["where"]
                elif item["type"] == "function_call_output":
                    told[item["call_id"]] = item["output"]
        case "openai_chat":
            for message in body["messages"]:
                for call in message.get("tool_calls", ()):
                    asked[call["id"]] = json.loads(call["function"]["arguments"])["where"]
                if message["role"] == "tool":
                    told[message["tool_call_id"]] = message["content"]
        case "gemini":  # ids are optional here, so it goes by order
            parts = [part for content in body["contents"] for part in content["parts"]]
            calls = [part["functionCall"] for part in parts if "functionCall" in part]
            answers = [part["functionResponse"] for part in parts if "functionResponse" in part]
            asked = {number: call["args"]["where"] for number, call in enumerate(calls)}
            told = dict(enumerate(answers))
    return asked, told


def _plainest(message: Block) -> Block:
    """One text in a list is the same as that text alone."""
    match message:
        case {"content": [{"type": "text", "text": str(text), **rest}]} if not rest:
            return {**message, "content": text}
    return message


def has_in_order(turns: list[Any], wanted: list[Any]) -> bool:
    """Whether all that is wanted is there, in order; other things may stand between."""
    left = iter(turns)
    return all(any(turn == one for turn in left) for one in wanted)
