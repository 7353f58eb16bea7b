"""A client's request, split into the conversation so far and what is new.

Clients are stateless: they send the whole conversation each time. What follows the model's last message is new: the
results of calls, or a prompt, or both. The rest is compared with what a session knows by a digest, which leaves out
what clients do not return unchanged: reasoning, white space around texts and in those of the model, the spelling of
arguments, the bounds between messages of one side.

Some clients also drop the text that a model writes beside calls, or write one of their own there. A second digest, the
loose one, leaves out these texts; it counts only for the session that the ids of the calls name.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from itertools import takewhile
from typing import NamedTuple, Self

import msgspec
from msgspec.structs import replace

from bridle.core.context.excerpt import join_result_text
from bridle.values.errors import Failure, ProviderError
from bridle.values.message import Media, Message, Part, PromptPart, Text, ToolCall, ToolResult
from bridle.values.request import Request
from bridle.values.text import parse_json

from .client_members import describe_native

NO_CALL = (
    "The result of the tool call '{call}' has no call before it; send the model's message that made it too."
)
NO_PROMPT = "The last message must be one of the user or the result of a tool call."
MESSAGES_MAX = 20_000
TOO_MANY_MESSAGES = "The conversation has {count:,} messages; at most {most:,} are accepted."


class ClientResult(NamedTuple):
    """The result of a call, with the id and name under which the client knows the call."""

    wire_id: str
    name: str
    result: ToolResult


class ClientTurn(NamedTuple):
    head: tuple[Message, ...]
    """The conversation up to the model's last message; empty at its beginning."""
    results: tuple[ClientResult, ...]
    prompt: tuple[PromptPart, ...]
    tail: tuple[Message, ...]
    """The messages of `results` and `prompt`."""

    @property
    def is_empty(self) -> bool:
        return not self.results and not self.prompt


def take_leading_system(request: Request) -> Request:
    """The request with the system messages before the first message of the user as its system prompt."""
    leading = [*takewhile(lambda message: message.role == "system", request.messages)]
    texts = [part for message in leading for part in message.parts if isinstance(part, Text)]
    if not leading or len(texts) < sum(len(message.parts) for message in leading):
        return request
    return replace(
        request, system=(*request.system, *texts), messages=request.messages[len(leading) :], breakpoints=()
    )


def split_conversation(messages: Sequence[Message]) -> ClientTurn:
    """Split the messages of a request; raises `ProviderError` if nothing is new, or there are too many."""
    if len(messages) > MESSAGES_MAX:
        problem = TOO_MANY_MESSAGES.format(count=len(messages), most=MESSAGES_MAX)
        raise ProviderError(Failure(kind="invalid", message=problem, status=400))
    end = max((at for at, message in enumerate(messages, 1) if message.role == "assistant"), default=0)
    head, tail = tuple(messages[:end]), tuple(messages[end:])
    calls = {call.id: call for message in head for call in message.calls}
    results = tuple(
        _name_result(result, calls.get(result.call_id)) for each in tail for result in each.results
    )
    prompt = tuple(
        part
        for message in tail
        if message.role != "tool"
        for part in message.parts
        if isinstance(part, PromptPart)
    )
    if not results and not any(not isinstance(part, Text) or part.text.strip() for part in prompt):
        raise ProviderError(Failure(kind="invalid", message=NO_PROMPT, status=400))
    return ClientTurn(head, results, prompt, tail)


def refuse_lone_results(turn: ClientTurn) -> None:
    """Raise `ProviderError` if a result is for a call that the conversation does not have."""
    called = {call.id for message in turn.head for call in message.calls}
    for each in turn.results:
        if each.result.call_id not in called:
            message = NO_CALL.format(call=each.wire_id or each.name)
            raise ProviderError(Failure(kind="invalid", message=message, status=400))


def _name_result(result: ToolResult, call: ToolCall | None) -> ClientResult:
    return ClientResult(call.wire_id if call else result.call_id, call.name if call else "", result)


class ConversationDigest:
    """Hash of a conversation as clients return it, message by message; `scope` keeps those of different users apart.

    Consecutive messages of one side are one turn: clients split and join them as they like.
    """

    def __init__(self, scope: Sequence[str]) -> None:
        self._hash = sha256(msgspec.json.encode(scope))
        self._loose = self._hash.copy()
        self._turn = _Turn()

    def add(self, *messages: Message) -> Self:
        for message in messages:
            is_of_model = message.role == "assistant"
            self._begin_turn(is_of_model=is_of_model)
            self._turn.take(message)
        return self

    def add_result(self, result: ToolResult, text_hash: str = "") -> None:
        """Add a result; `text_hash` is the hash of its text if the text is an excerpt."""
        self._begin_turn(is_of_model=False)
        self._turn.results.append(describe_result(result, text_hash))

    def _begin_turn(self, *, is_of_model: bool) -> None:
        if is_of_model != self._turn.is_of_model:
            self._hash.update(self._turn.encode())
            self._loose.update(self._turn.encode(is_loose=True))
            self._turn = _Turn(is_of_model=is_of_model)

    def compute_with(self, reply: Message, *, is_loose: bool = False) -> str:
        """The hash after one more message of the model."""
        return self._compute((self._turn, _Turn(is_of_model=True).take(reply)), is_loose=is_loose)

    @property
    def value(self) -> str:
        return self._compute((self._turn,), is_loose=False)

    @property
    def loose_value(self) -> str:
        """The hash without the texts of the model beside calls."""
        return self._compute((self._turn,), is_loose=True)

    def _compute(self, turns: "Iterable[_Turn]", *, is_loose: bool) -> str:
        ended = (self._loose if is_loose else self._hash).copy()
        for turn in turns:
            ended.update(turn.encode(is_loose=is_loose))
        return ended.hexdigest()


class _Turn:
    """Content of one side: texts, calls, results and media."""

    def __init__(self, *, is_of_model: bool = False) -> None:
        self.is_of_model = is_of_model
        self.texts: list[str] = []
        self.calls: list[tuple[str, object]] = []
        self.results: list[tuple[str, bool, list[str]]] = []
        self.media: list[str] = []

    def take(self, message: Message) -> Self:
        self.texts += [
            text for part in message.parts if isinstance(part, Text) and (text := part.text.strip())
        ]
        self.calls += [(call.name, _normalize(call.arguments)) for call in message.calls]
        self.results += map(describe_result, message.results)
        self.media += [_describe_media(part) for part in message.parts if isinstance(part, Media)]
        if message.role != "assistant":
            self.media += _describe_natives(message.parts)
        return self

    def encode(self, *, is_loose: bool = False) -> bytes:
        """The turn as JSON; empty if it has nothing. White space in texts of the model is partly ours."""
        texts = " ".join(self.texts).split() if self.is_of_model else self.texts
        if is_loose and self.is_of_model and self.calls:
            texts = []
        described = texts, self.calls, self.results, self.media
        return msgspec.json.encode((self.is_of_model, *described)) + b"\n" if any(described) else b""


def digest_conversation(scope: Sequence[str], messages: Iterable[Message]) -> str:
    return ConversationDigest(scope).add(*messages).value


def digest_first_request(scope: Sequence[str], request: Request) -> str:
    """Hash of a request without a conversation before it, with everything that it asks for."""
    asked = replace(request, messages=(), stream=False)
    given = msgspec.json.encode(asked).decode()
    return digest_conversation(("first", *scope, given), request.messages)


def digest_opening(messages: Iterable[Message]) -> str:
    """Hash of what comes before the model's first message: conversations with another one need not be compared."""
    return digest_conversation((), takewhile(lambda message: message.role != "assistant", messages))


def describe_result(result: ToolResult, text_hash: str = "") -> tuple[str, bool, list[str]]:
    """The text by its hash, whether it is an error, and its media."""
    media = [_describe_media(part) for part in result.parts if isinstance(part, Media)]
    media += _describe_natives((result, *result.parts))
    return text_hash or sha256(join_result_text(result).encode()).hexdigest(), result.is_error, media


def _describe_natives(parts: Iterable[Part]) -> list[str]:
    """What the client's wire alone has: a client that changes it has left the conversation."""
    found = (describe_native(part) for part in parts if part.native is not None)
    return [sha256(told.encode()).hexdigest() for told in found if told]


def _describe_media(part: Media) -> str:
    return sha256(part.data.encode()).hexdigest() if part.data else part.url or part.file_id


def _normalize(arguments: str) -> object:
    try:
        return parse_json(arguments.strip() or "{}")
    except ValueError:
        return arguments
