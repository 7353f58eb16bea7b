"""OpenAI Responses, our side and theirs.

The body is joined, never written anew: model, instructions and tools first, then the items, each encoded
once, and behind them everything that may change from one request to the next.  So the bytes of one
request up to its last item begin the bytes of the following one, whatever changes in between.

Three ways to keep a conversation, one stateless call:

  - Everything is sent every time and nothing is stored (`store: false`); this is the default.  Reasoning
    travels encrypted, inside the items.
  - With the extra `previous_response_id` only what came after the reply of that id is sent; the provider
    holds the rest.  A parent nobody here has heard of (a conversation begun elsewhere) holds all that went
    before the first message.
  - With a conversation object (`Request.conversation`, made by `open_conversation`) only what came after the
    newest reply in it is sent; an empty one is sent everything.  With the extra `conversation`, which names
    one of the caller's own, only what came after this endpoint's last reply is sent.

A conversation that is to be made short goes to a path of its own, without tools and without anything that
shapes an answer.  What comes back is a list of items, sent as it came instead of what it was made of.

Without either extra the same messages go out in full again, so falling back when the provider has
forgotten its part is asking once more without it.

The rest of the family by what it does: `_openai_responses_items` and `_content` (parts and items),
`_write` (messages out), `_decode` and `_growing` (replies in), `_ends` (stops and counts), `_failures`,
`_read` and `_speak` (the provider's side), `_strict` (which schemas are), `_meaning` (what the provider
takes for equal).

Keys are no business of a codec: whoever sends the request adds them.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from ..ports.codec import Decoder, HttpReply, HttpRequest, Kept
from ..values.errors import BadTool, Failure, MisuseError
from ..values.message import Reply
from ..values.model import ANY_EFFORT, Abilities, Model, ReasoningPolicy
from ..values.parts import Opaque
from ..values.request import OutputSpec, Request, Thinking, ToolSpec
from ..values.value import Value
from ._dialect import spoken_at
from ._json import dumps, is_object, loads, mended, raw
from ._listed_form import Signs
from ._marks import system_ttls
from ._names import SHORT
from ._openai_prompts import OPTIONS, UNKEPT, kept_by, message_points, takes_points
from ._openai_responses_content import Block
from ._openai_responses_conversation import open_conversation, opened_conversation
from ._openai_responses_decode import ResponsesDecoder
from ._openai_responses_failures import speak_failure
from ._openai_responses_items import ANSWER_SCHEMA, FAMILY, NAMES, SCHEMA, legal_name
from ._openai_responses_meaning import meaning
from ._openai_responses_points import marked_message
from ._openai_responses_read import MODES, STATEFUL, SUMMARIES, read
from ._openai_responses_speak import speak
from ._openai_responses_write import KeptItems, Manner
from ._remarks import Carries, unsent_settings
from ._shell import json_headers, kept_here
from ._tool_schema import reason_unfit, restoring, schema_remarks, sendable
from .schemas import is_strict_ready

PATH, COMPACT_PATH = "/responses", "/responses/compact"
TAKEN_TO_COMPACT = (
    "previous_response_id",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "service_tier",
    "image",
)
"""All that may be said beside a conversation that is to be made short."""
OUTPUT_TOKENS_MIN = 16
"""Fewer are refused."""

_SPOKEN_FOR = frozenset({"model", "input", "instructions", "tools", "stream"})
"""Fields of the body that have a place of their own in a request."""
_DELIVERY = "stream_options"
_ENCRYPTED = "reasoning.encrypted_content"


class Dialect(Value):
    """What servers of this wire do differently."""

    with_ids: bool = True
    """Whether items may come back under the ids they were given; some bind those to one connection."""
    sealed_by: str = ""
    """A pattern of ids: sealed items go to models in whose id it finds the same, see `_home`."""


PLAIN = Dialect()
SIGNS = Signs(
    types=frozenset(
        {
            "message",
            "function_call",
            "function_call_output",
            "reasoning",
            "item_reference",
            "custom_tool_call",
            "custom_tool_call_output",
            "web_search_call",
            "compaction",
        }
    ),
    content_types=frozenset({"input_text", "output_text", "input_image", "input_file"}),
)
"""What only lists of this wire have."""


class ResponsesCodec:
    def __init__(self, dialect: Dialect = PLAIN) -> None:
        self._dialect = dialect

    @property
    def family(self) -> str:
        return FAMILY

    @property
    def listed(self) -> str:
        return "input"

    def recognizes(self, item: object) -> bool:
        return SIGNS.fit(item)

    def keep(self) -> KeptItems:
        return KeptItems()

    def encode(self, request: Request, kept: Kept | None = None) -> HttpRequest:
        """`digest` covers the whole body but its delivery, and costs only what is new to `kept`."""
        kept = kept_here(kept, KeptItems, self.keep)
        if request.compacts:
            request = replace(request, tools=(), marks=(), compared_to="", stream=False)
        extras = _extras(request)
        stored = _stored(extras)
        # All of a chain sent again is a chain that was lost: the ids in it name nothing any more.
        lost = request.chained and not (request.chained_to or _has_conversation(request))
        held = any(name in extras for name in STATEFUL) and not lost
        dialect = spoken_at(request.model.endpoint, self._dialect)
        manner = Manner(
            reasoning=_policy(request.model.endpoint.reasoning, held=stored and not lost),
            with_ids=dialect.with_ids and not lost,
            held=held,
            sealed_by=dialect.sealed_by,
            model_id=request.model.id if dialect.sealed_by else "",
            marked=takes_points(request.model.abilities),
        )
        kept.going(request.model.endpoint, manner, request.deferred, _tool)
        # A conversation that the provider holds has its first message already: there it can stand only once.
        spoken = not (held or request.chained) and any(mark.place == "system" for mark in request.marks)
        follows = kept.writes(request.messages)
        kept.head(
            (request.model.id, request.tools, request.system, system_ttls(request), spoken, follows),
            lambda: _head(request, spoken=spoken, follows=follows),
        )
        compacts = request.compacts
        body, digest = kept.body_since(
            _start(request, extras),
            request.messages,
            _short_tail(request, extras) if compacts else _tail(request, extras, stored=stored),
            message_points(request),
            ending=_ending(request, extras),
        )
        path = COMPACT_PATH if compacts else PATH
        return HttpRequest(path=path, body=body, headers=json_headers(request), digest=digest)

    def remarks(self, request: Request) -> tuple[str, ...]:
        return (*schema_remarks(request, SCHEMA, ANSWER_SCHEMA), *_remarks(request))

    def reason_unfit(self, output: OutputSpec, model: Model) -> str:
        return reason_unfit(output, ANSWER_SCHEMA)

    def open_conversation(self, model: Model) -> HttpRequest:
        return open_conversation(model)

    def opened_conversation(self, status: int, headers: Mapping[str, str], body: bytes) -> str:
        return opened_conversation(status, headers, body)

    def decoder(self, request: Request, status: int, headers: Mapping[str, str]) -> Decoder:
        tools = (*request.tools, *request.deferred)
        decoder = NAMES.decoder(ResponsesDecoder(request.model, status, headers), tools)
        return restoring(decoder, request, SCHEMA)

    def read(self, request: HttpRequest) -> Request:
        return read(request)

    def speak(self, reply: Reply, *, stream: bool) -> HttpReply:
        return speak(reply, stream=stream)

    def speak_failure(self, failure: Failure) -> HttpReply:
        return speak_failure(failure)

    def meaning(self, request: HttpRequest) -> object:
        """The body with everything removed that the provider does not tell apart."""
        return meaning(request)


def _remarks(request: Request) -> tuple[str, ...]:
    thinking, abilities = request.thinking, request.model.abilities
    reasons = bool(abilities.thinking or abilities.efforts)
    mode = thinking is None or not thinking.mode or (reasons and thinking.mode in MODES)
    raised = request.max_tokens is not None and request.max_tokens < OUTPUT_TOKENS_MIN
    note = f"max_tokens {request.max_tokens} became {OUTPUT_TOKENS_MIN}: fewer are refused"
    carries = Carries(stop_sequences=False, top_k=False, mode=mode, budget=False)
    return (*unsent_settings(request, carries), *((note,) if raised else ()))


def _head(request: Request, *, spoken: bool, follows: bool) -> bytes:
    """`spoken`: the instructions are a message, because only what is in a message can be marked."""
    # A prompt kept by the provider may name the model itself.
    head: Block = {"model": request.model.id} if request.model.id else {}
    instructions = "\n\n".join(mended(text.text) for text in request.system if text.text.strip())
    if instructions and not spoken:
        head["instructions"] = instructions
    if request.tools:
        head["tools"] = [_tool(spec) for spec in request.tools]
    written = dumps({**head, "input": []})[:-2]
    if not instructions or not spoken:
        return written
    return written + dumps(marked_message(request.system, system_ttls(request))) + (b"," if follows else b"")


def _tool(spec: ToolSpec) -> Block | Raw:
    if spec.native is not None:
        if not is_object(spec.native):
            raise BadTool(f"the native definition of tool {spec.name!r} is no JSON object: correct it")
        return raw(spec.native)
    if not is_object(spec.parameters):
        raise BadTool(f"the parameters of tool {spec.name!r} are no JSON Schema object: correct them")
    tool: Block = {"type": "function", "name": legal_name(spec.name)}
    if spec.description:
        tool["description"] = spec.description
    # Said either way: left out, the provider would try to make the schema strict by rewriting it.
    strict = is_strict_ready(spec.parameters)
    return {**tool, "parameters": sendable(spec.parameters, SCHEMA), "strict": strict}


def _extras(request: Request) -> dict[str, Any]:
    given: dict[str, Any] = {}
    if request.chained and not _has_conversation(request):
        given["store"] = True
    if request.conversation and not _has_conversation(request):
        given["conversation"] = request.conversation
    elif request.chained and not _has_conversation(request):
        given["previous_response_id"] = request.chained_to or None
    for extra in request.extras:
        if extra.name in _SPOKEN_FOR:
            raise MisuseError(
                f"extra {extra.name!r} would replace part of the request: set it on the request"
            )
        try:
            given[extra.name] = loads(extra.json)
        except ValueError as error:
            raise MisuseError(f"extra {extra.name!r} holds no JSON ({error}): correct it") from None
    return {name: value for name, value in given.items() if value is not None}


def _has_conversation(request: Request) -> bool:
    """Whether the caller names a conversation object, which then goes before one of ours."""
    return any(extra.name == "conversation" for extra in request.extras)


def _stored(extras: Mapping[str, Any]) -> bool:
    """Whether the provider is to keep the reply: only when asked, or when what is asked for needs it."""
    default = any(extras.get(name) for name in (*STATEFUL, "background"))
    return bool(extras.get("store", default))


def _policy(policy: ReasoningPolicy, *, held: bool) -> ReasoningPolicy:
    """What the provider holds can be named by its id, so it need not carry its proof."""
    return "may_echo" if policy == "signed" and held else policy


def _start(request: Request, extras: Mapping[str, Any]) -> int:
    """How many of the messages the provider holds by itself."""
    named = [name for name in STATEFUL if name in extras]
    if len(named) > 1:
        raise MisuseError(f"{' and '.join(named)} exclude each other: remove one of these extras")
    own = bool(request.conversation) and not _has_conversation(request)
    if not named or (own and not request.chained_to):
        return 0
    parent = request.chained_to if own else extras.get("previous_response_id")
    for place in range(len(request.messages) - 1, -1, -1):
        message = request.messages[place]
        here = message.origin is not None and message.origin.endpoint == request.model.endpoint.home
        if here and message.reply_id and parent in (None, message.reply_id):
            return place + 1
    return 0


def _tail(request: Request, extras: Mapping[str, Any], *, stored: bool) -> bytes:
    """What may differ from one request to the next, in a fixed order."""
    abilities, sampling = request.model.abilities, request.sampling
    fields: Block = {}
    if request.max_tokens is not None:
        fields["max_output_tokens"] = max(request.max_tokens, OUTPUT_TOKENS_MIN)
    if abilities.sampling:
        chosen = {"temperature": sampling.temperature, "top_p": sampling.top_p}
        fields.update((name, value) for name, value in chosen.items() if value is not None)
    if request.tools and (choice := _tool_choice(request)) != "auto":
        fields["tool_choice"] = choice
    if not request.tool_choice.parallel and _offers_tools(request):
        fields["parallel_tool_calls"] = False
    reasons = bool(abilities.thinking or abilities.efforts)
    if request.thinking and reasons and (reasoning := _reasoning(request.thinking, abilities)):
        fields["reasoning"] = reasoning
    if request.output and request.output.mode == "native":
        fields["text"] = {"format": _format(request.output)}
    fields["store"] = stored
    fields |= {name: value for name, value in kept_by(request).items() if name not in extras}
    # Models that do not reason refuse to be asked for it, so of a model nobody knows it is not.
    certain = reasons and ANY_EFFORT not in abilities.efforts
    if certain and request.model.endpoint.reasoning == "signed":
        fields["include"] = [_ENCRYPTED]
    for name, value in extras.items():
        if name not in ("store", _DELIVERY):
            _add(fields, name, value)
    return b"]," + dumps(fields)[1:-1]


def _short_tail(request: Request, extras: Mapping[str, Any]) -> bytes:
    """Without its tools nothing of the prompt was kept, and none is asked for again: keeping is not paid."""
    fields = {OPTIONS: UNKEPT} if takes_points(request.model.abilities) else {}
    fields |= {name: extras[name] for name in TAKEN_TO_COMPACT if name in extras}
    return b"]" + (b"," + dumps(fields)[1:-1] if fields else b"")


def _ending(request: Request, extras: Mapping[str, Any]) -> bytes:
    """How the reply is to be delivered: no part of what is asked."""
    if not request.stream:
        return b"}"
    options = {_DELIVERY: extras[_DELIVERY]} if _DELIVERY in extras else {}
    return b"," + dumps({"stream": True, **options})[1:]


def _offers_tools(request: Request) -> bool:
    """Whether there is something to call: at the top, or brought in by an item of the conversation."""
    return bool(request.tools or request.deferred) or any(
        isinstance(part, Opaque) and part.kind == "additional_tools"
        for message in request.messages
        for part in message.parts
    )


def _tool_choice(request: Request) -> str | Block:
    choice = request.tool_choice
    if choice.mode != "tool":
        return "required" if choice.mode == "any" else choice.mode
    kind = "function"
    for spec in request.tools:
        if spec.name == choice.name and spec.native is not None and is_object(spec.native):
            kind = loads(spec.native).get("type", kind)
    named = {"name": legal_name(choice.name)} if kind in ("function", "custom") else {}
    return {"type": kind, **named}


def _reasoning(thinking: Thinking, abilities: Abilities) -> Block:
    wire: Block = {}
    if thinking.effort and (not abilities.efforts or abilities.takes_effort(thinking.effort)):
        wire["effort"] = thinking.effort
    if summary := SUMMARIES.get(thinking.display):
        wire["summary"] = summary
    if thinking.mode in MODES:
        wire["mode"] = thinking.mode
    return wire


def _format(output: OutputSpec) -> Block:
    if not is_object(output.parameters):
        raise MisuseError(f"the schema of output {output.name!r} is no JSON object: correct it")
    wire: Block = {"type": "json_schema", "name": SHORT.cleaned(output.name)}
    if output.description:
        wire["description"] = output.description
    strict = is_strict_ready(output.parameters)
    return {**wire, "schema": sendable(output.parameters, ANSWER_SCHEMA), "strict": strict}


def _add(fields: Block, name: str, value: Any) -> None:
    """An extra may add to a list or an object, never change what is set."""
    present = fields.get(name)
    if present is None:
        fields[name] = value
    elif isinstance(present, dict) and isinstance(value, dict):
        fields[name] = {**value, **present}
    elif isinstance(present, list) and isinstance(value, list):
        fields[name] = [*present, *(each for each in value if each not in present)]
    else:
        raise MisuseError(f"extra {name!r} is set by the request already: remove one of the two")


CODEC = ResponsesCodec()
