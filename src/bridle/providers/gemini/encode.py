"""Messages on their way to Gemini: which part stands where, under which name, and answered by what.

The strictest reading of the wire is written.  Two speakers alternate, so neighbours of one side become
one content.  All calls of a turn stand in one content and all their responses in the next one, as many
as there were calls and in their order, whatever order they came in: responses wait in here until
the last one is there.  A call whose result never comes is answered with an error as soon as anybody
else speaks; a result without a call, or a second one, is left out.

A signature goes back on the part it came on, to the model it came from, and nowhere else.  Where a
model demands signatures, a call that never had one from it carries the word the provider has for
that instead; it is put where the rule applies, on the first call of a turn.

A call goes out under the id this endpoint gave it, when it gave one and did not use it before.  One
that never had an id goes without: the provider then pairs by name and order, which is how it is written.
"""

from collections.abc import Iterator, Sequence

from msgspec import Raw

from bridle.providers.wire.dialect import read_dialect
from bridle.providers.wire.encoded_history import HIDDEN_BEGINNING_TEXT, WireTurn, make_lost_result
from bridle.providers.wire.json import dumps, is_object, loads, text_or_empty
from bridle.providers.wire.origin import is_from_same_origin, match_model_id
from bridle.values.base import Value
from bridle.values.message import Message, Opaque, Part, Reasoning, ToolCall, ToolResult
from bridle.values.model import Endpoint, Model

from .parts import (
    CONTINUATION_KIND,
    CONTINUATION_TOKEN,
    FAMILY,
    SIGNATURE,
    Block,
    OriginMatch,
    encode_part,
    encode_tool_name,
)

_USER_OPENING, _MODEL_OPENING = b'{"role":"user","parts":[', b'{"role":"model","parts":['
_CLOSING = b"]}"


class GeminiDialect(Value):
    """What endpoints of this family may do differently."""

    unsigned_call: str = "skip_thought_signature_validator"
    """What stands in for a signature that never was, where one is demanded; documented by the provider."""
    unsigned_models: str = ""
    """A pattern of ids: these models sign calls or do not, and demand nothing."""
    hosted_alone: str = ""
    """A pattern of ids: these models take functions or the provider's own tools, never both at once."""
    sealed_by: str = ""
    """A pattern of ids: a signature goes to models in whose id it finds the same, see `_home`."""


DEFAULT_DIALECT = GeminiDialect()


class _SentCall(Value):
    """A call as it went out."""

    id: str
    name: str


class GeminiMessageEncoder:
    def __init__(self, endpoint: Endpoint | None, model_id: str = "") -> None:
        self._endpoint, self._model_id = endpoint, model_id
        self._dialect = read_dialect(endpoint, DEFAULT_DIALECT)
        self._reasoning = endpoint.reasoning if endpoint else "may_echo"
        self._demands = self._reasoning == "signed" and not match_model_id(
            self._dialect.unsigned_models, model_id
        )
        self._sent: dict[str, _SentCall] = {}
        self._used: set[str] = set()
        self._begun = False
        """Whether the user has said anything."""
        self._results: dict[str, tuple[ToolResult, OriginMatch] | None] = {}
        """Calls that wait to be answered, in order, with those results that have come."""

    def __call__(self, message: Message) -> Sequence[WireTurn]:
        turns = [
            WireTurn(opening, b",".join(blocks), _CLOSING, merges_with_previous=True)
            for opening, blocks in self._encode_turns(message)
            if blocks
        ]
        self._begun = self._begun or any(turn.opening == _USER_OPENING for turn in turns)
        return turns

    def _encode_turns(self, message: Message) -> Iterator[tuple[bytes, list[bytes]]]:
        kinship = self._match_origin(message)
        if message.role == "assistant":
            if any(self._results.values()):
                yield _USER_OPENING, self._encode_results()
            blocks = self._encode_model_parts(message, kinship)
            if not self._begun and self._results:
                # A call must follow a user's turn, and what came before this one was cut away.
                yield _USER_OPENING, [dumps({"text": HIDDEN_BEGINNING_TEXT})]
            yield _MODEL_OPENING, blocks
            return
        for result in message.results:
            if result.call_id in self._results:
                self._results[result.call_id] = self._results[result.call_id] or (result, kinship)
        others = [
            block for part in message.parts if (block := self._encode_user_part(part, kinship)) is not None
        ]
        if others or message.role != "tool" or all(self._results.values()):
            yield _USER_OPENING, self._encode_results()
        yield _USER_OPENING, [dumps(block) for block in others]

    def _match_origin(self, message: Message) -> OriginMatch:
        origin = message.origin
        if origin is None or origin.family != FAMILY:
            return OriginMatch.FOREIGN
        sealed_by = self._dialect.sealed_by
        own = is_from_same_origin(
            origin, FAMILY, self._endpoint, sealed_by=sealed_by, model_id=self._model_id
        )
        return OriginMatch.OWN if own else OriginMatch.FAMILY

    def _encode_user_part(self, part: Part, kinship: OriginMatch) -> Block | Raw | None:
        return None if isinstance(part, ToolResult | ToolCall | Reasoning) else encode_part(part, kinship)

    def _encode_model_parts(self, message: Message, kinship: OriginMatch) -> list[bytes]:
        blocks: list[Block | Raw] = []
        first_call: Block | None = None
        signed = False
        for part in message.parts:
            if isinstance(part, ToolResult) or (
                isinstance(part, Reasoning) and not self._sends_reasoning_back(part, kinship)
            ):
                continue
            sent = (
                self._register_call(part, kinship)
                if isinstance(part, ToolCall)
                else _SentCall(id="", name="")
            )
            block = encode_part(part, kinship, name=sent.name, sent_id=sent.id)
            if isinstance(part, ToolCall) and isinstance(block, dict):
                if not part.name or not is_object(part.arguments.strip() or "{}"):
                    block.pop(
                        SIGNATURE, None
                    )  # made for what cannot be sent: no name, arguments that broke off
                first_call = first_call or block
                signed = signed or SIGNATURE in block
            if block is not None:
                blocks.append(block)
        if self._demands and first_call is not None and not signed:
            first_call[SIGNATURE] = self._dialect.unsigned_call
        return [dumps(block) for block in blocks]

    def _sends_reasoning_back(self, part: Reasoning, kinship: OriginMatch) -> bool:
        if self._reasoning == "strip" or not (part.text or part.signature):
            return False
        must = self._reasoning == "must_echo" and kinship is OriginMatch.FAMILY and bool(part.text)
        return kinship is OriginMatch.OWN or must

    def _register_call(self, call: ToolCall, kinship: OriginMatch) -> _SentCall:
        """Give the call the id and the name it goes out with, and wait for its result."""
        chosen = call.wire_id if kinship is OriginMatch.OWN else ""
        if chosen in self._used:
            chosen = call.id
            while chosen in self._used:
                chosen += "_"
        if chosen:
            self._used.add(chosen)
        sent = _SentCall(id=chosen, name=encode_tool_name(call.name))
        self._sent[call.id] = sent
        self._results[call.id] = None
        return sent

    def _encode_results(self) -> list[bytes]:
        """The responses to all calls that wait, in the order of the calls."""
        blocks = []
        for call_id, answer in self._results.items():
            result, kinship = answer or (make_lost_result(call_id), OriginMatch.FOREIGN)
            sent = self._sent[call_id]
            block = encode_part(result, kinship, name=sent.name, sent_id=sent.id)
            assert isinstance(block, dict)
            blocks.append(dumps(block))
        self._results.clear()
        return blocks


def answer_open_calls(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages, with a result for each call the last turn left open.

    Calls left open earlier are answered when the next message is written; at the end there is none.
    """
    given: set[str] = set()
    before: set[str] = set()
    asked: list[str] = []
    for message in reversed(messages):
        calls = [call.id for call in message.calls]
        if message.role == "assistant":
            if not before.isdisjoint(calls):
                break  # they got a result, so the next turn made the writer answer what was open
            asked[:0] = calls
        elif message.role == "tool":
            (before if asked else given).update(result.call_id for result in message.results)
        else:
            break  # anybody else who spoke did so too
    open_calls = [call_id for call_id in asked if call_id not in given]
    if not open_calls:
        return messages
    return (*messages, Message(role="tool", parts=tuple(map(make_lost_result, open_calls))))


def find_continuation(messages: Sequence[Message], model: Model) -> tuple[Sequence[Message], str]:
    """What to ask with to go on with a paused reply: the messages before it, and the token it gave.

    The provider keeps the beginning of its answer itself; the token stands for it.
    """
    count, token = len(messages), ""
    while count and (held := _continuation_token(messages[count - 1], model)):
        token = token or held
        count -= 1
    return messages[:count], token


def _continuation_token(message: Message, model: Model) -> str:
    sealed_by = read_dialect(model.endpoint, DEFAULT_DIALECT).sealed_by
    if not is_from_same_origin(
        message.origin, FAMILY, model.endpoint, sealed_by=sealed_by, model_id=model.id
    ):
        return ""
    for part in message.parts:
        if isinstance(part, Opaque) and part.kind == CONTINUATION_KIND and is_object(part.native):
            return text_or_empty(loads(part.native).get(CONTINUATION_TOKEN))
    return ""
