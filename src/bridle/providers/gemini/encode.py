"""Encodes messages for Gemini: order of parts, names and ids of calls, and their responses.

The output follows the strictest reading of the wire. Roles alternate, so adjacent messages of one side become
one content. All calls of a turn are in one content and all their responses in the next one, as many as there
were calls and in their order: responses are held back until the last one has arrived. A call without a result
gets an error response before the next turn; a result without a call, or a second one, is omitted.

A signature is sent back on the part it came with, to the model it came from, and nowhere else. If a model
requires signatures, a call without one carries the value that the provider documents for that case, on the
first call of a turn, where the rule applies.

A call is sent with the id this endpoint gave it, if there is one and it was not used before. A call that
never had an id is sent without: the provider then pairs by name and order, which the encoding guarantees.
"""

from collections.abc import Iterator, Sequence

from msgspec import Raw

from bridle.providers.wire.dialect import is_from_same_origin, match_model_id, read_dialect
from bridle.providers.wire.encoded_history import HIDDEN_BEGINNING_TEXT, WireTurn, make_lost_result
from bridle.providers.wire.json import dumps, is_object, loads, text_or_empty
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


class GeminiDialect(Value, kw_only=True):
    """Differences between the endpoints of this family."""

    unsigned_call: str = "skip_thought_signature_validator"
    """Value sent in place of a missing signature where one is required; documented by the provider."""
    unsigned_models: str = ""
    """Pattern of model ids: these models do not require signatures on calls."""
    hosted_alone: str = ""
    """Pattern of model ids: these models accept functions or hosted tools, never both at once."""
    sealed_by: str = ""
    """Pattern of model ids: a signature is sent to models with the same match (wire/dialect.py)."""


DEFAULT_DIALECT = GeminiDialect()


class _SentCall(Value, kw_only=True):
    """A call as it was sent."""

    id: str
    name: str


class GeminiMessageEncoder:
    def __init__(self, endpoint: Endpoint | None, model_id: str = "") -> None:
        self._endpoint, self._model_id = endpoint, model_id
        self._dialect = read_dialect(endpoint, DEFAULT_DIALECT)
        self._reasoning = endpoint.reasoning if endpoint else "may_echo"
        self._requires_signatures = self._reasoning == "signed" and not match_model_id(
            self._dialect.unsigned_models, model_id
        )
        self._sent: dict[str, _SentCall] = {}
        self._used: set[str] = set()
        self._has_user_turn = False
        """True if a user turn has been written."""
        self._results: dict[str, tuple[ToolResult, OriginMatch] | None] = {}
        """Calls without a response so far, in order, with the results that have arrived."""

    def __call__(self, message: Message) -> Sequence[WireTurn]:
        turns = [
            WireTurn(opening, b",".join(blocks), _CLOSING, merges_with_previous=True)
            for opening, blocks in self._encode_turns(message)
            if blocks
        ]
        self._has_user_turn = self._has_user_turn or any(turn.opening == _USER_OPENING for turn in turns)
        return turns

    def _encode_turns(self, message: Message) -> Iterator[tuple[bytes, list[bytes]]]:
        origin_match = self._match_origin(message)
        if message.role == "assistant":
            if any(self._results.values()):
                yield _USER_OPENING, self._encode_results()
            blocks = self._encode_model_parts(message, origin_match)
            if not self._has_user_turn and self._results:
                # A call must follow a user turn, and the turns before this one were removed.
                yield _USER_OPENING, [dumps({"text": HIDDEN_BEGINNING_TEXT})]
            yield _MODEL_OPENING, blocks
            return
        for result in message.results:
            if result.call_id in self._results:
                self._results[result.call_id] = self._results[result.call_id] or (result, origin_match)
        others = [
            block
            for part in message.parts
            if (block := self._encode_user_part(part, origin_match)) is not None
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

    def _encode_user_part(self, part: Part, origin_match: OriginMatch) -> Block | Raw | None:
        return (
            None if isinstance(part, ToolResult | ToolCall | Reasoning) else encode_part(part, origin_match)
        )

    def _encode_model_parts(self, message: Message, origin_match: OriginMatch) -> list[bytes]:
        blocks: list[Block | Raw] = []
        first_call: Block | None = None
        signed = False
        for part in message.parts:
            if isinstance(part, ToolResult) or (
                isinstance(part, Reasoning) and not self._sends_reasoning_back(part, origin_match)
            ):
                continue
            sent = (
                self._register_call(part, origin_match)
                if isinstance(part, ToolCall)
                else _SentCall(id="", name="")
            )
            block = encode_part(part, origin_match, name=sent.name, sent_id=sent.id)
            if isinstance(part, ToolCall) and isinstance(block, dict):
                if not part.name or not is_object(part.arguments.strip() or "{}"):
                    block.pop(
                        SIGNATURE, None
                    )  # it signed content that cannot be sent: no name, or truncated arguments
                first_call = first_call or block
                signed = signed or SIGNATURE in block
            if block is not None:
                blocks.append(block)
        if self._requires_signatures and first_call is not None and not signed:
            first_call[SIGNATURE] = self._dialect.unsigned_call
        return [dumps(block) for block in blocks]

    def _sends_reasoning_back(self, part: Reasoning, origin_match: OriginMatch) -> bool:
        if self._reasoning == "strip" or not (part.text or part.signature):
            return False
        must = self._reasoning == "must_echo" and origin_match is OriginMatch.FAMILY and bool(part.text)
        return origin_match is OriginMatch.OWN or must

    def _register_call(self, call: ToolCall, origin_match: OriginMatch) -> _SentCall:
        """Choose the id and the name a call is sent with, and register it as waiting for a result."""
        chosen = call.wire_id if origin_match is OriginMatch.OWN else ""
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
        """Encode the responses to all waiting calls, in the order of the calls."""
        blocks = []
        for call_id, answer in self._results.items():
            result, origin_match = answer or (make_lost_result(call_id), OriginMatch.FOREIGN)
            sent = self._sent[call_id]
            block = encode_part(result, origin_match, name=sent.name, sent_id=sent.id)
            assert isinstance(block, dict)
            blocks.append(dumps(block))
        self._results.clear()
        return blocks


def answer_open_calls(messages: Sequence[Message]) -> Sequence[Message]:
    """Append a result for each call that the last turn left open.

    Calls left open earlier are answered when the next message is encoded; at the end there is none.
    """
    given: set[str] = set()
    before: set[str] = set()
    called: list[str] = []
    for message in reversed(messages):
        calls = [call.id for call in message.calls]
        if message.role == "assistant":
            if not before.isdisjoint(calls):
                break  # these calls have results, so the next turn already answered the open ones
            called[:0] = calls
        elif message.role == "tool":
            (before if called else given).update(result.call_id for result in message.results)
        else:
            break  # any other message answers open calls too
    open_calls = [call_id for call_id in called if call_id not in given]
    if not open_calls:
        return messages
    return (*messages, Message(role="tool", parts=tuple(map(make_lost_result, open_calls))))


def find_continuation(messages: Sequence[Message], model: Model) -> tuple[Sequence[Message], str]:
    """Return the messages before a paused reply and the token that continues it."""
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
