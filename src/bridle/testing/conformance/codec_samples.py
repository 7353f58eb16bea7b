"""Sample values that every wire family can carry, for the conformance check of codecs.

The samples contain nothing specific to a provider: no native members, no opaque parts. Codecs with such
features bring their own samples. `normalize_request` removes what no wire carries.
"""

import json

from msgspec.structs import replace

from bridle.values.errors import Failure
from bridle.values.message import Media, Message, Part, Reasoning, Reply, Stop, Text, ToolCall, ToolResult
from bridle.values.model import Abilities, Endpoint, Model, Origin
from bridle.values.request import OutputSpec, Request, Sampling, ToolChoice, ToolSpec
from bridle.values.usage import Usage

MODEL = "model-1"
PIXEL_PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

SAMPLE_FAILURES = (
    Failure(kind="rate_limited", message="slow down", retry_after_seconds=7.5),
    Failure(kind="rate_limited", message="slow down", status=429),
    Failure(kind="overloaded", message="too many at once"),
    Failure(kind="unauthorized", message="no such key"),
    Failure(kind="not_found", message="no such model"),
    Failure(kind="invalid", message="a field is missing", should_retry=False),
    Failure(kind="context", message="more words than fit"),
    Failure(kind="too_large", message="more bytes than fit"),
    Failure(kind="quota", message="nothing left to spend"),
    Failure(kind="server", message="something broke"),
)


def sample_replies(family: str) -> list[Reply]:
    """Make replies as a decoder returns them: calls have the provider's id and none of ours yet."""
    origin = Origin(family=family, endpoint=family, model=MODEL)
    usage = Usage(input=11, cache_read=7, output=13)

    def reply(*parts: Part, stop: Stop = Stop.DONE) -> Reply:
        return Reply(parts=parts, stop=stop, origin=origin, usage=usage, id="reply_1")

    text = Text(text='It is  warmer in Tōkyō 🌡️ — "27 °C",\n\nnot 19.\t\\n  ')
    tokyo = ToolCall(id="", name="get_weather", arguments='{"city": "Tōkyō"}', wire_id="call_1")
    york = ToolCall(
        id="", name="get_weather", arguments='{"city":"New \\"York\\"", "n": 1.50}', wire_id="call_2"
    )
    nothing = ToolCall(id="", name="now", arguments="{}", wire_id="call_3")
    return [
        reply(text),
        reply(Text(text="Let me look."), tokyo, york, nothing, stop=Stop.TOOLS),
        reply(Text(text="x" * 300 + " and no end"), stop=Stop.LENGTH),
        reply(Text(text="I will not."), stop=Stop.REFUSED),
        reply(),
    ]


def sample_requests(family: str) -> list[Request]:
    endpoint = Endpoint(name=family, family=family)
    model = Model(id=MODEL, endpoint=endpoint, abilities=Abilities(output_tokens=4_000))
    tools = (
        ToolSpec(
            name="get_weather",
            description="Current weather.",
            parameters='{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}',
        ),
        ToolSpec(name="now"),
    )
    return [
        Request(model=model, messages=_sample_conversation(family), max_tokens=500, stream=False),
        Request(
            model=model,
            system=(Text(text="Be brief."),),
            tools=tools,
            messages=_sample_conversation(family),
            tool_choice=ToolChoice(mode="tool", name="now"),
            max_tokens=500,
            sampling=Sampling(temperature=0.5, stop_sequences=("END",)),
        ),
        Request(
            model=model,
            messages=_sample_conversation(family)[:1],
            max_tokens=500,
            output=OutputSpec(name="answer", parameters='{"type":"object"}'),
        ),
    ]


def _sample_conversation(family: str) -> tuple[Message, ...]:
    origin_of_model = Origin(family=family, endpoint=family, model=MODEL)
    calls = (
        ToolCall(id="c2_0", name="get_weather", arguments='{"city": "Tōkyō"}', wire_id="call_1"),
        ToolCall(id="c2_1", name="now", arguments="{}", wire_id="call_2"),
    )
    results = (
        ToolResult(call_id="c2_0", parts=(Text(text="27 °C"),)),
        ToolResult(call_id="c2_1", parts=(Text(text="no clock"),), outcome="timeout"),
    )
    picture = Media(kind="image", media_type="image/png", data=PIXEL_PNG)
    conversation: list[tuple[Message, Origin | None]] = [
        (Message(role="user", parts=(Text(text="Warm in Tōkyō? “Yes” or \\no\n"), picture)), None),
        (Message(role="assistant", parts=(Text(text="Let me look."), *calls)), origin_of_model),
        (Message(role="tool", parts=results), None),
        (Message(role="assistant", parts=(Text(text="Yes."),)), origin_of_model),
        (Message(role="user", parts=(Text(text="And now? 🌡️"),)), None),
        (Message(role="assistant", parts=(replace(calls[1], id="c6_0", wire_id="call_2"),)), origin_of_model),
        (Message(role="tool", parts=(ToolResult(call_id="c6_0", parts=(Text(text="noon"),)),)), None),
    ]
    return tuple(
        replace(message, id=f"m{place + 1}", parent=f"m{place}" if place else "", origin=origin)
        for place, (message, origin) in enumerate(conversation)
    )


def request_for(reply: Reply) -> Request:
    """Make a request that the reply could answer."""
    endpoint = Endpoint(name=reply.origin.endpoint, family=reply.origin.family)
    return Request(model=Model(id=reply.origin.model, endpoint=endpoint))


def normalize_request(request: Request) -> Request:
    """Remove what no wire carries from a request."""
    messages: list[Message] = []
    numbers: dict[str, str] = {}
    for message in request.messages:
        parts = tuple(part for each in message.parts if (part := _normalize_part(each, numbers)) is not None)
        if parts and messages and messages[-1].role == message.role:
            messages[-1] = Message(role=message.role, parts=(*messages[-1].parts, *parts))
        elif parts:
            messages.append(Message(role=message.role, parts=parts))
    tools = (
        ToolSpec(
            name=tool.name,
            description=tool.description,
            parameters=_normalize_json(tool.parameters),
            native=tool.native and _normalize_json(tool.native),
        )
        for tool in request.tools
    )
    output = request.output and OutputSpec(name="", parameters=_normalize_json(request.output.parameters))
    return replace(
        request,
        model=Model(id=request.model.id, endpoint=Endpoint(name="", family="")),
        system=tuple(text for text in request.system if text.text.strip()),
        tools=tuple(tools),
        messages=tuple(messages),
        output=output,
        breakpoints=tuple(sorted(request.breakpoints, key=repr)),
        extras=tuple(sorted(request.extras, key=repr)),
    )


def _normalize_part(part: Part, numbers: dict[str, str]) -> Part | None:
    match part:
        case Text(text=text):
            return part if text.strip() else None
        case ToolCall(id=call_id, arguments=arguments):
            numbers[call_id] = str(len(numbers))
            return replace(part, id=numbers[call_id], arguments=_normalize_json(arguments), wire_id="")
        case ToolResult(call_id=call_id, parts=inner, outcome=outcome):
            kept = tuple(each for each in inner if not isinstance(each, Text) or each.text.strip())
            return replace(
                part,
                call_id=numbers.get(call_id, call_id),
                parts=kept,
                outcome="ok" if outcome == "ok" else "error",
            )
        case Reasoning(signature=""):
            return None
    return part


def _normalize_json(text: str) -> str:
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except ValueError:
        return text
