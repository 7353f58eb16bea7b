"""Coherent streams drawn from the vendors' stream types: a whole reply, and the events that carry the same reply.

`draw_stream(family, chance)` gives both.  Every event is made by its published type: its required members, a draw of its
optional ones, and in place of what was drawn the piece of the reply that it carries.  No decoder of ours is asked what
a stream looks like.  `write_stream` gives the bytes, `cut_bytes` cuts them anywhere.
"""

import base64
import itertools
import json
import string
from typing import Any, NamedTuple

from bridle.providers.wire.eventstream import encode_event
from tests.wire.vendors.vendor_replies import EVENTS, ROOTS, maker
from tests.wire.vendors.vendor_rules import DATA_MEMBERS
from tests.wire.vendors.vendor_shapes import Shapes

BETA_ROOTS = ("anthropic beta reply", "anthropic beta event")
ALPHABET = (*string.ascii_letters, *' \n\t"\\/{}[]:,', "é", "ß", "中", "𝄞", "😀", "\u2028", "\x7f", "\u0000")
NOT_IN_TYPES = ("reasoning_content",)
"""Members of the Chat wire that its servers send and that no published type has."""


class Stream(NamedTuple):
    body: dict
    """The reply as it is when it comes whole."""
    events: list
    """(name, event) in their order."""
    halved: bool
    """Whether some piece ends inside a character."""


class Drawer:
    """Draws replies and the pieces of their streams."""

    def __init__(self, chance):
        self.chance, self.made, self.shapes = chance, maker(chance), Shapes()
        self.halved = False
        self.halves = chance.random() < 0.3
        self.ids = iter(range(10**6))
        self.made.skip |= {
            "#o.Response.moderation",
            "#o.ChatCompletion.moderation",
            "#o.ChatCompletionChunk.moderation",
        }
        for member in ("text", "thinking", "refusal", "transcript"):
            self.made.fixed[member] = lambda node: self.words() if node == "str" else self.made.plain(node)
        for member in ("input", "args"):
            self.made.fixed[member] = lambda node: self.arguments() if node != "str" else self.words()
        self.made.fixed["arguments"] = lambda node: json.dumps(
            self.arguments(), ensure_ascii=self.is_drawn(0.5)
        )

    def is_drawn(self, part):
        return self.chance.random() < part

    def words(self, least=0):
        return "".join(
            self.chance.choice(ALPHABET) for _ in range(self.chance.choice((0, 1, 3, 12, 40)) + least)
        )

    def value(self, depth=0):
        """Any JSON value that a call may have in its arguments."""
        kind = self.chance.randrange(8 if depth < 2 else 6)
        match kind:
            case 0:
                return self.chance.choice((True, False, None))
            case 1:
                return self.chance.choice((0, -1, 2**63, 10**25, 0.1, 1e-9))
            case 6:
                return [self.value(depth + 1) for _ in range(self.chance.randrange(3))]
            case 7:
                return {self.words(1): self.value(depth + 1) for _ in range(self.chance.randrange(3))}
        return self.words()

    def arguments(self):
        if self.is_drawn(0.15):
            return {}
        return {
            "city": self.words(),
            **{self.words(1): self.value() for _ in range(self.chance.randrange(4))},
        }

    def cut(self, text):
        """A text in pieces, cut anywhere: inside escapes, between the halves of a character, some pieces empty."""
        if self.is_drawn(0.2):
            return [text] if text or self.is_drawn(0.5) else []
        if self.halves:
            units = text.encode("utf-16-le", "surrogatepass")
            units = [
                units[at : at + 2].decode("utf-16-le", "surrogatepass") for at in range(0, len(units), 2)
            ]
        else:
            units = list(text)
        marks = [
            0,
            *sorted(self.chance.randrange(len(units) + 1) for _ in range(self.chance.randrange(6))),
            len(units),
        ]
        pieces = ["".join(units[at:to]) for at, to in itertools.pairwise(marks)]
        self.halved |= any(is_half(piece) for piece in pieces)
        return pieces

    def event(self, name, **members):
        """An event of a type: what is drawn for its members, and those that are given."""
        return {**self.made.make(f"#{name}"), **members}

    def picked(self, name, values):
        """Those of some values that a type has a member for."""
        said = self.shapes.shape(name)
        return {
            member: values[member]
            for member in (*said.get("req", {}), *said.get("opt", {}))
            if member in values
        }

    def required(self, name):
        return self.shapes.shape(name).get("req", {})

    def alternatives(self, node):
        return node[1:] if isinstance(node, list) and node[0] == "|" else [node]

    def identity(self):
        return f"id_s{next(self.ids)}"


def is_half(piece):
    """Whether a text begins or ends with half a character."""
    try:
        piece.encode()
    except UnicodeEncodeError:
        return True
    return False


def draw_stream(family, chance, root=None):
    drawer = Drawer(chance)
    body, events = DRAWERS[family](drawer, root or ROOTS[family])
    return Stream(body, events, drawer.halved)


def event_root(family, root=None):
    return BETA_ROOTS[1] if root == BETA_ROOTS[0] else EVENTS[family]


# --- Anthropic: blocks are announced, grow by deltas, and end


def draw_anthropic(drawer, root):
    beta = "Beta" if root == BETA_ROOTS[0] else ""
    chance, name = drawer.chance, f"a.{beta}Message"
    body = drawer.made.make(f"#{name}")
    kinds = drawer.alternatives(drawer.required(name)["content"][1])
    common = [
        f"#a.{beta}{kind}Block"
        for kind in ("Text", "Text", "Thinking", "ToolUse", "ToolUse", "ServerToolUse")
    ]
    body["content"] = [
        drawer.made.make(chance.choice(common if drawer.is_drawn(0.7) else kinds))
        for _ in range(chance.randrange(1, 6))
    ]
    body["stop_reason"] = chance.choice(drawer.shapes.shape(name)["opt"]["stop_reason"][2][1:])
    return body, list(anthropic_events(drawer, body, beta))


def anthropic_events(drawer, body, beta):
    delta_event = f"a.{beta}RawMessageDeltaEvent"
    delta = drawer.required(delta_event)["delta"].removeprefix("#")
    ended = drawer.picked(delta, body)
    counted = drawer.required(delta_event)["usage"].removeprefix("#")
    usage = drawer.picked(counted, body["usage"])
    usage = {
        member: value
        for member, value in usage.items()
        if member in drawer.required(counted) or drawer.is_drawn(0.5)
    }
    beside = drawer.picked(delta_event, {m: v for m, v in body.items() if m not in ("type", "usage")})
    begun = {member: value for member, value in body.items() if member not in ended and member not in beside}
    begun |= {"content": [], "stop_reason": None, "usage": {**body["usage"], "output_tokens": 1}}
    start = {"type": "message_start", "message": begun}
    yield "message_start", start
    for index, block in enumerate(body["content"]):
        cut = body["stop_reason"] == "max_tokens" and block is body["content"][-1]
        stub, deltas = anthropic_deltas(drawer, block, beta, cut=cut)
        yield "content_block_start", {"type": "content_block_start", "index": index, "content_block": stub}
        if drawer.is_drawn(0.1):
            yield "ping", {"type": "ping"}
        for each in deltas:
            yield "content_block_delta", {"type": "content_block_delta", "index": index, "delta": each}
        yield "content_block_stop", {"type": "content_block_stop", "index": index}
    yield "message_delta", {"type": "message_delta", "delta": ended, "usage": usage, **beside}
    yield "message_stop", {"type": "message_stop"}


def anthropic_deltas(drawer, block, beta, *, cut):
    """A block as it is announced, and the deltas that make the rest of it."""
    match block["type"]:
        case "text":
            said = [
                drawer.event(f"a.{beta}TextDelta", type="text_delta", text=piece)
                for piece in drawer.cut(block["text"])
            ]
            sources = [{"type": "citations_delta", "citation": each} for each in block.get("citations") or ()]
            for source in sources:
                said.insert(drawer.chance.randrange(len(said) + 1), source)
            order = iter(sources)
            said = [next(order) if each["type"] == "citations_delta" else each for each in said]
            more = {"citations": drawer.chance.choice(([], None))} if sources else {}
            return {**block, "text": "", **more}, said
        case "thinking":
            said = [
                drawer.event(f"a.{beta}ThinkingDelta", type="thinking_delta", thinking=piece)
                for piece in drawer.cut(block["thinking"])
            ]
            signed = [{"type": "signature_delta", "signature": block["signature"]}]
            return {**block, "thinking": "", "signature": ""}, said + signed
        case "tool_use" | "server_tool_use" | "mcp_tool_use":
            text = json.dumps(block["input"], ensure_ascii=drawer.is_drawn(0.5)) if block["input"] else ""
            if not text and not cut and drawer.is_drawn(0.3):
                text = "{}"
            return {**block, "input": {}}, [
                {"type": "input_json_delta", "partial_json": piece} for piece in drawer.cut(text)
            ]
        case "compaction" if block.get("content") or block.get("encrypted_content"):
            said = drawer.picked("a.BetaCompactionContentBlockDelta", block)
            stub = {member: value for member, value in block.items() if member not in said} | {
                "type": "compaction"
            }
            return stub, [{**said, "type": "compaction_delta"}]
    return block, []


# --- Responses: every item is said in pieces, when it is done, and once more at the end


def draw_responses(drawer, root):
    chance, made = drawer.chance, drawer.made
    body = made.root(root)
    kinds = drawer.alternatives(drawer.required("o.Response")["output"][1])
    common = [
        f"#o.Response{kind}"
        for kind in (
            "OutputMessage",
            "OutputMessage",
            "ReasoningItem",
            "FunctionToolCall",
            "FunctionToolCall",
            "CustomToolCall",
        )
    ]
    items = [
        made.make(chance.choice(common if drawer.is_drawn(0.75) else kinds))
        for _ in range(chance.randrange(1, 6))
    ]
    for item in items:
        if "status" in item and item["status"] in ("in_progress", "queued"):
            item["status"] = "completed"
    body |= {
        "output": items,
        "error": None,
        "incomplete_details": None,
        "status": "completed",
        "id": "resp_1",
    }
    if drawer.is_drawn(0.2):
        body |= {"status": "incomplete", "incomplete_details": made.make("#o.IncompleteDetails")}
    drop_absent(drawer, body, ("incomplete_details", "error"))
    events = []
    for number, event in enumerate(responses_events(drawer, body)):
        events.append((event["type"], {**event, "sequence_number": number}))
    return body, events


def drop_absent(drawer, body, members):
    for member in members:
        if body[member] is None and drawer.is_drawn(0.5):
            del body[member]


def responses_events(drawer, body):
    types = types_of_events(drawer)
    telling = drawer.chance.choice(("all", "all", "all", "no last output", "no done items"))
    begun = {**body, "output": [], "status": "in_progress"} | {"incomplete_details": None}
    begun.pop("usage", None)
    for kind in ("response.created", "response.in_progress"):
        yield drawer.event(types[kind], response=begun)
    for index, item in enumerate(body["output"]):
        at = {"output_index": index, "item_id": item.get("id") or drawer.identity()}
        added = types["response.output_item.added"]
        yield drawer.event(
            added, output_index=index, item=item_stub(drawer, item, drawer.required(added)["item"])
        )
        yield from item_events(drawer, types, item, at)
        if telling != "no done items":
            yield drawer.event(types["response.output_item.done"], output_index=index, item=item)
    last = {**body, "output": []} if telling == "no last output" else body
    yield drawer.event(types[f"response.{body['status']}"], response=last)


def types_of_events(drawer):
    """The shapes of the events, by the literal of their type."""
    shapes = [each.removeprefix("#") for each in drawer.shapes.roots[EVENTS["openai_responses"]][1:]]
    return {drawer.required(each)["type"][1]: each for each in shapes}


def item_stub(drawer, item, node):
    """An item as it is announced: nothing said, and not done where its type has a word for that."""
    empty = {"message": {"content": []}, "reasoning": {"summary": []}, "function_call": {"arguments": ""}}
    empty |= {"custom_tool_call": {"input": ""}, "mcp_call": {"arguments": ""}}
    stub = {**item, **empty.get(item["type"], {})}
    if item["type"] == "reasoning":
        stub = {
            member: value for member, value in stub.items() if member not in ("content", "encrypted_content")
        }
    begun = {**stub, "status": "in_progress"}
    return begun if stub.get("status") == "completed" and not drawer.shapes.of_node(node, begun, "") else stub


def item_events(drawer, types, item, at):
    def pieces(kind, whole, inside, text, **more):
        for piece in drawer.cut(text):
            yield drawer.event(types[kind], delta=piece, **at, **more)
        yield drawer.event(types[whole], **{inside: text}, **at, **more)

    match item["type"]:
        case "message":
            for place, part in enumerate(item["content"]):
                yield from content_events(drawer, types, part, {**at, "content_index": place})
        case "reasoning":
            for place, part in enumerate(item["summary"]):
                of, kind = {"summary_index": place}, "response.reasoning_summary"
                stub = {**part, "text": ""}
                yield drawer.event(types[f"{kind}_part.added"], part=stub, **at, **of)
                yield from pieces(f"{kind}_text.delta", f"{kind}_text.done", "text", part["text"], **of)
                yield drawer.event(types[f"{kind}_part.done"], part=part, **at, **of)
            for place, part in enumerate(item.get("content") or ()):
                yield from content_events(drawer, types, part, {**at, "content_index": place})
        case "function_call":
            kind = "response.function_call_arguments"
            yield from pieces(f"{kind}.delta", f"{kind}.done", "arguments", item["arguments"])
        case "custom_tool_call":
            kind = "response.custom_tool_call_input"
            yield from pieces(f"{kind}.delta", f"{kind}.done", "input", item["input"])
        case "mcp_call":
            kind = "response.mcp_call_arguments"
            yield from pieces(f"{kind}.delta", f"{kind}.done", "arguments", item["arguments"])
        case "code_interpreter_call" if item.get("code"):
            kind = "response.code_interpreter_call_code"
            yield from pieces(f"{kind}.delta", f"{kind}.done", "code", item["code"])
    plain = {"item_id", "output_index", "sequence_number", "type"}
    for kind, shape in types.items():
        if (
            kind.startswith(f"response.{item['type']}.")
            and set(drawer.required(shape)) == plain
            and drawer.is_drawn(0.5)
        ):
            yield drawer.event(shape, **at)


def content_events(drawer, types, part, at):
    """A part of a message's content, or of a reasoning item's."""
    kind, inside = {
        "output_text": ("response.output_text", "text"),
        "refusal": ("response.refusal", "refusal"),
        "reasoning_text": ("response.reasoning_text", "text"),
    }[part["type"]]
    yield drawer.event(types["response.content_part.added"], part={**part, inside: ""}, **at)
    for piece in drawer.cut(part[inside]):
        yield drawer.event(types[f"{kind}.delta"], delta=piece, **at)
    for number, note in enumerate(part.get("annotations") or ()):
        shape = types["response.output_text.annotation.added"]
        yield drawer.event(shape, annotation=note, annotation_index=number, **at)
    yield drawer.event(types[f"{kind}.done"], **{inside: part[inside]}, **at)
    yield drawer.event(types["response.content_part.done"], part=part, **at)


# --- Chat: deltas of one message, calls by their index


def draw_chat(drawer, root):
    chance, made = drawer.chance, drawer.made
    body = made.root(root)
    choice = made.make("#o.Choice")
    choice["index"], message = 0, choice["message"]
    carried = drawer.shapes.shape("o.ChoiceDelta")["opt"]
    for member in [each for each in message if each not in carried]:
        del message[member]
    message["content"] = chance.choice((None, drawer.words(), drawer.words(1)))
    calls = [
        made.make("#o.ChatCompletionMessageFunctionToolCall") for _ in range(chance.choice((0, 0, 1, 2, 3)))
    ]
    for member, there in (("tool_calls", calls), ("function_call", not calls and drawer.is_drawn(0.1))):
        message.pop(member, None)
        if there:
            message[member] = calls or made.make("#o.FunctionCall~2")
    if message.get("refusal") is not None:
        message["refusal"] = drawer.words(1)
    if not any(message.get(member) for member in carried if member != "role"):
        message["content"] = drawer.words(1)
    if drawer.is_drawn(0.3):
        message["reasoning_content"] = drawer.words(1)
    body["choices"] = [choice]
    return body, [("message", event) for event in chat_events(drawer, body)]


def chat_events(drawer, body):
    choice = body["choices"][0]
    message = choice["message"]
    same = drawer.picked(
        "o.ChatCompletionChunk", {m: v for m, v in body.items() if m not in ("object", "choices", "usage")}
    )

    def chunk(*deltas, **more):
        said = [
            {**drawer.event("o.Choice~2", index=0, delta=each, finish_reason=None), **more} for each in deltas
        ]
        event = {
            **drawer.event("o.ChatCompletionChunk", object="chat.completion.chunk"),
            **same,
            "choices": said,
        }
        for member in ("usage", *(m for m in ("service_tier", "system_fingerprint") if m not in same)):
            event.pop(member, None)
        if "usage" in body and drawer.is_drawn(0.5):
            event["usage"] = None
        return event

    deltas = []
    for member in ("reasoning_content", "content", "refusal"):
        deltas += [{member: piece} for piece in drawer.cut(message[member])] if message.get(member) else []
    deltas += audio_deltas(drawer, message.get("audio"))
    if function := message.get("function_call"):
        first = {"name": function["name"], "arguments": ""}
        deltas += [
            {"function_call": each}
            for each in (first, *({"arguments": piece} for piece in drawer.cut(function["arguments"])))
        ]
    deltas += call_deltas(drawer, message.get("tool_calls") or ())
    yield chunk({"role": "assistant", "content": drawer.chance.choice(("", None))})
    last = deltas.pop() if deltas and drawer.is_drawn(0.3) else {}
    for delta in deltas:
        yield chunk(delta)
    end = chunk(last, finish_reason=choice["finish_reason"])
    if body.get("usage") is not None:
        if drawer.is_drawn(0.5):
            end["usage"] = body["usage"]
        else:
            yield end
            end = {**chunk(), "usage": body["usage"]}
    yield end


def audio_deltas(drawer, audio):
    if not audio:
        return []
    beside = {member: audio[member] for member in ("id", "expires_at")}
    first, *rest = [{"data": piece} for piece in (audio["data"][:3], audio["data"][3:])]
    said = [{**beside, **first}, *rest, *({"transcript": piece} for piece in drawer.cut(audio["transcript"]))]
    return [{"audio": each} for each in said]


def call_deltas(drawer, calls):
    rows = []
    for index, call in enumerate(calls):
        pieces = drawer.cut(call["function"]["arguments"])
        opening = pieces.pop(0) if pieces and drawer.is_drawn(0.5) else ""
        first = {"index": index, **call, "function": {**call["function"], "arguments": opening}}
        nothing = drawer.chance.choice(({}, {"id": None, "type": None}, {"type": "function"}))
        rows.append(
            [first, *({"index": index, **nothing, "function": {"arguments": piece}} for piece in pieces)]
        )
    if drawer.is_drawn(0.3):
        # Calls of one message may grow at the same time; each begins after those before it.
        mixed = [row.pop(0) for row in rows]
        while any(rows):
            mixed.append(drawer.chance.choice([row for row in rows if row]).pop(0))
        rows = [mixed]
    together = drawer.is_drawn(0.1)
    flat = [each for row in rows for each in row]
    return [{"tool_calls": flat}] if together and flat else [{"tool_calls": [each]} for each in flat]


# --- Gemini: every event is a reply with some of the parts


def draw_gemini(drawer, root):
    chance, made = drawer.chance, drawer.made
    body = made.root(root)
    for member in ("promptFeedback", "sdkHttpResponse", "parsed", "automaticFunctionCallingHistory"):
        body.pop(member, None)
    candidate = made.make("#g.Candidate")
    reasons = drawer.shapes.shape("g.Candidate")["opt"]["finishReason"][1:]
    candidate["finishReason"] = chance.choice(("STOP", chance.choice(reasons[1:])))
    candidate["index"] = 0
    parts = [gemini_part(drawer) for _ in range(chance.randrange(1, 7))]
    candidate["content"] = {"role": "model", "parts": parts}
    body["candidates"] = [candidate]
    return body, [("message", event) for event in gemini_events(drawer, body)]


def gemini_part(drawer):
    members = drawer.shapes.shape("#g.Part~3")["opt"]
    common = ("text", "text", "text", "functionCall", "functionCall")
    kind = drawer.chance.choice(common if drawer.is_drawn(0.75) else DATA_MEMBERS)
    part = {kind: drawer.made.make(members[kind], f".{kind}")}
    if kind == "functionCall":
        part[kind]["name"] = "look"
    if kind == "text" and drawer.is_drawn(0.3):
        part["thought"] = True
    if drawer.is_drawn(0.4):
        part["thoughtSignature"] = drawer.made.plain("b64")
    return part


def gemini_events(drawer, body):
    candidate, usage = body["candidates"][0], body.get("usageMetadata")
    pieces = []
    for part in candidate["content"]["parts"]:
        if "text" in part and "thoughtSignature" not in part:
            pieces += [{**part, "text": piece} for piece in drawer.cut(part["text"]) or [""]]
        else:
            pieces.append(part)
    marks = sorted(drawer.chance.randrange(len(pieces) + 1) for _ in range(drawer.chance.randrange(6)))
    chunks = [pieces[at:to] for at, to in zip([0, *marks], [*marks, len(pieces)], strict=True)]
    common = {
        member: value for member, value in body.items() if member not in ("candidates", "usageMetadata")
    }
    early = {member: candidate[member] for member in ("index",) if drawer.is_drawn(0.5)}
    for number, parts in enumerate(chunks):
        last = number == len(chunks) - 1
        said = {**(candidate if last else early), "content": {"role": "model", "parts": parts}}
        if not parts and drawer.is_drawn(0.3):
            said["content"] = {"role": "model"}
        counts = {"usageMetadata": usage} if usage is not None and (last or drawer.is_drawn(0.3)) else {}
        yield {**common, "candidates": [said], **counts}


# --- Converse: calls, results and pictures are announced, words and thoughts are not


def draw_converse(drawer, root):
    chance, made = drawer.chance, drawer.made
    body = made.root(root)
    carried = [
        kind for kind in drawer.shapes.shape("b.ContentBlock")["opt"]
        if kind in drawer.shapes.shape("b.ContentBlockDelta")["opt"] or kind == "citationsContent"
    ]  # fmt: skip
    common = ("text", "text", "toolUse", "toolUse", "reasoningContent")
    blocks = [
        converse_block(drawer, chance.choice(common if drawer.is_drawn(0.7) else carried))
        for _ in range(chance.randrange(1, 6))
    ]
    body["output"] = {"message": {"role": "assistant", "content": blocks}}
    return body, [(next(iter(each)), each) for each in converse_events(drawer, body)]


def converse_block(drawer, kind):
    made = drawer.made
    block = {kind: made.make(drawer.shapes.shape("b.ContentBlock")["opt"][kind], f".{kind}")}
    match kind:
        case "toolUse":
            block[kind]["input"] = drawer.arguments()
        case "toolResult":
            node = drawer.shapes.shape("b.ContentBlockDelta")["opt"]["toolResult"]
            block[kind]["content"] = made.make(node)
        case "citationsContent":
            sources = [made.make("#b.Citation") for _ in range(drawer.chance.randrange(1, 3))]
            block[kind] = {"citations": sources, "content": [{"text": drawer.words(1)}]}
        case "image":
            block[kind] = {"format": block[kind]["format"], "source": {"bytes": made.plain("b64")}}
    return block


def converse_events(drawer, body):
    yield {"messageStart": {"role": "assistant"}}
    for index, block in enumerate(body["output"]["message"]["content"]):
        at = {"contentBlockIndex": index}
        cut = body["stopReason"] == "max_tokens" and block is body["output"]["message"]["content"][-1]
        start, deltas = converse_deltas(drawer, *next(iter(block.items())), cut=cut)
        if start is not None:
            yield {"contentBlockStart": {"start": start, **at}}
        for delta in deltas:
            yield {"contentBlockDelta": {"delta": delta, **at}}
        yield {"contentBlockStop": at}
    yield {"messageStop": drawer.picked("b.MessageStopEvent", body)}
    yield {"metadata": drawer.picked("b.ConverseStreamMetadataEvent", body)}


def converse_deltas(drawer, kind, block, *, cut):
    match kind:
        case "text":
            return None, [{"text": piece} for piece in drawer.cut(block) or [""]]
        case "citationsContent":
            text: Any = [{"text": piece} for piece in drawer.cut(block["content"][0]["text"]) or [""]]
            return None, [*text, *({"citation": each} for each in block["citations"])]
        case "reasoningContent":
            return None, [{kind: each} for each in thought_deltas(drawer, block)]
        case "toolUse":
            text = json.dumps(block["input"], ensure_ascii=drawer.is_drawn(0.5))
            text = "" if text == "{}" and (cut or drawer.is_drawn(0.5)) else text
            start = drawer.picked("b.ToolUseBlockStart", block)
            return {kind: start}, [{kind: {"input": piece}} for piece in drawer.cut(text)]
        case "toolResult":
            return {kind: drawer.picked("b.ToolResultBlockStart", block)}, [
                {kind: [each]} for each in block["content"]
            ]
    data = base64.b64decode(block["source"]["bytes"])
    at = drawer.chance.randrange(1, len(data))
    pieces = [base64.b64encode(piece).decode() for piece in (data[:at], data[at:])]
    return {kind: {"format": block["format"]}}, [{kind: {"source": {"bytes": piece}}} for piece in pieces]


def thought_deltas(drawer, block):
    if "redactedContent" in block:
        data = base64.b64decode(block["redactedContent"])
        at = drawer.chance.randrange(1, len(data))
        return [{"redactedContent": base64.b64encode(piece).decode()} for piece in (data[:at], data[at:])]
    said = block["reasoningText"]
    signed = [{"signature": said["signature"]}] if "signature" in said else []
    return [*({"text": piece} for piece in drawer.cut(said["text"]) or [""]), *signed]


DRAWERS = {
    "anthropic": draw_anthropic,
    "openai_responses": draw_responses,
    "openai_chat": draw_chat,
    "gemini": draw_gemini,
    "bedrock_converse": draw_converse,
}


# --- bytes


def write_stream(family, events, chance):
    """The bytes of a stream; what stands between events on the wire is there too."""
    if family == "bedrock_converse":
        return b"".join(encode_event(name, json.dumps(event[name]).encode()) for name, event in events)
    lines = []
    for name, event in events:
        named = f"event: {name}\n" if "type" in event else ""
        lines.append(
            f"{named}data: {json.dumps(event, ensure_ascii=has_half(event) or chance.random() < 0.5)}\n\n"
        )
        if chance.random() < 0.05:
            lines.append(": keep-alive\n\n")
    if family == "openai_chat":
        lines.append("data: [DONE]\n\n")
    return "".join(lines).encode()


def has_half(event):
    return is_half(json.dumps(event, ensure_ascii=False))


def cut_bytes(data, chance):
    marks = sorted(chance.randrange(len(data) + 1) for _ in range(chance.randrange(12)))
    return [data[at:to] for at, to in zip([0, *marks], [*marks, len(data)], strict=True)]
