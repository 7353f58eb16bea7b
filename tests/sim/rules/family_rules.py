"""The request rules of each wire family, written a second time and independently of the encoders.

`violations` looks at a decoded body the way the provider does and lists everything it would object to.
It was written from the providers' documents and from error messages people were given, and imports
nothing that writes requests, so an encoder and its judge cannot share a mistake.

Rules that only some servers have are switched on by `Demands`.  What an endpoint may be sent back of its
own (signatures, encrypted reasoning, ids) is what it `Handed` out before: anything else is a forgery.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise, takewhile
from typing import Any

from bridle.sim.families import list_rules
from bridle.sim.rules.engine import RawRequest
from bridle.values.model import Abilities

Block = dict[str, Any]

SENTINEL = "skip_thought_signature_validator"
MARKS_MAX = 4
CHAT_ID_LENGTH_MAX = 40
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_GEMINI_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")
_BEDROCK_ID = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")
_SURROGATE = re.compile("[\ud800-\udfff]")
_CHAT_THOUGHTS = ("reasoning_content", "reasoning", "reasoning_details")


@dataclass(frozen=True, kw_only=True)
class Demands:
    signed: bool = True
    """Reasoning is taken back only with proof."""
    must_echo: bool = False
    """A message with calls must have its reasoning with it."""
    strip: bool = False
    """No reasoning is taken back at all."""
    alternates: bool = False
    """Users and models take turns, calls and their results not counted."""


@dataclass(kw_only=True)
class Handed:
    """What one endpoint gave out, by which it knows its own again."""

    proofs: dict[str, Any] = field(default_factory=dict)
    """What each signature, or sealed thought, was given for: the words, or the call."""
    thoughts: set[str] = field(default_factory=set)
    """Words thought without proof."""
    call_ids: set[str] = field(default_factory=set)
    item_ids: set[str] = field(default_factory=set)
    led_to: dict[str, str] = field(default_factory=dict)
    """The id of the item that followed a reasoning item, by the id of that."""


NOTHING = Handed()


def violations(
    family: str,
    body: Block,
    *,
    headers: Mapping[str, str] | None = None,
    sent_before: Handed = NOTHING,
    demands: Demands | None = None,
    abilities: Abilities | None = None,
) -> list[str]:
    """Everything this family's provider would object to; empty when it would answer."""
    demands = demands or Demands()
    found = [f"{place}: half a character" for place, text in _texts(body) if _SURROGATE.search(text)]
    found += _CHECKS[family](body, sent_before, demands)
    if family == "anthropic":
        found += _second_opinion(body, headers or {}, abilities)
    return found


def load_body(body: bytes) -> Block:
    """A body as a provider reads it; raises `ValueError` for what is no UTF-8 JSON object."""
    read: Any = json.loads(body.decode("utf-8"), parse_constant=_no_constant)
    if not isinstance(read, dict):
        raise ValueError("the body is no JSON object")
    return read


# Anthropic Messages ---------------------------------------------------------------------------------


def _anthropic(body: Block, handed: Handed, demands: Demands) -> Iterator[str]:
    turns = _merge_turns(body.get("messages", []))
    if not turns:
        yield "at least one message is required"
        return
    if turns[-1][0] == "assistant":
        yield "the conversation must end with a user message"
    for name in ("temperature", "top_p", "top_k"):
        if name in body:
            yield f"{name} is not taken by this version"
    yield from _anthropic_marks(body)
    yield from _tool_names([tool.get("name") for tool in body.get("tools", ()) if "input_schema" in tool])
    for block in _list(body.get("system")):
        if not block.get("text", "").strip():
            yield "system: blank text"
    asked = [
        (role, [(b["id"], b) for b in blocks if b["type"] == "tool_use"],
         [(b["tool_use_id"], b) for b in blocks if b["type"] == "tool_result"])
        for role, blocks in turns
    ]  # fmt: skip
    yield from _paired(asked)
    for number, (role, blocks) in enumerate(turns):
        for block in blocks:
            yield from (f"turn {number}: {what}" for what in _anthropic_block(block, role, handed, demands))
        kinds = [block["type"] for block in blocks]
        if not kinds:
            yield f"turn {number}: empty content"
        if "tool_result" in kinds and kinds != sorted(kinds, key=lambda kind: kind != "tool_result"):
            yield f"turn {number}: results do not come first"
        if "tool_use" in kinds and set(kinds[kinds.index("tool_use") :]) & {"text", "thinking"}:
            yield f"turn {number}: a call is followed by words"
        if role == "assistant" and kinds and kinds[-1] in ("thinking", "redacted_thinking"):
            yield f"turn {number}: the final block is reasoning"


def _anthropic_block(block: Block, role: str, handed: Handed, demands: Demands) -> Iterator[str]:
    match block:
        case {"type": "text", "text": str(text)}:
            if not text.strip():
                yield "text content blocks must contain non-whitespace text"
        case {"type": "tool_use", "id": id_, "name": name, "input": given}:
            if role != "assistant":
                yield "a call that is not the model's"
            if not _ID.fullmatch(id_):
                yield f"tool_use.id {id_!r} has letters it may not have"
            if not _NAME.fullmatch(name):
                yield f"tool_use.name {name!r} is not legal"
            if not isinstance(given, dict):
                yield "tool_use.input is no object"
        case {"type": "tool_result"}:
            if role != "user":
                yield "a result that is not the user's"
            content = block.get("content", [])
            for inner in content if isinstance(content, list) else ():
                if inner["type"] not in ("text", "image", "document", "search_result", "tool_reference"):
                    yield f"a result holds a {inner['type']}"
                yield from _anthropic_block(inner, role, handed, demands)
        case {"type": "thinking", "thinking": text, "signature": proof}:
            yield from _proven(proof, text, role, handed, demands)
        case {"type": "redacted_thinking", "data": proof}:
            yield from _proven(proof, "", role, handed, demands)
        case {"type": "image" | "document", "source": {"type": "base64" | "url" | "file" | "text"}}:
            if role == "assistant":
                yield "a picture in a model's message"
        case _:
            yield f"a block nobody knows: {sorted(block)} {block.get('type')}"


def _proven(proof: str, words: str, role: str, handed: Handed, demands: Demands) -> Iterator[str]:
    if role != "assistant":
        yield "reasoning that is not the model's"
    if demands.strip:
        yield "reasoning input is not enabled for this model"
    elif not proof and demands.signed:
        yield "signature: Field required"
    elif proof and proof not in handed.proofs:
        yield "Invalid `signature`: this endpoint never gave it"
    elif proof and handed.proofs[proof] != words:
        yield "reasoning cannot be modified"


def _anthropic_marks(body: Block) -> Iterator[str]:
    marks = [("end", body)] if "cache_control" in body else []
    last_thing: list[tuple[str, Block]] = [("tool", tool) for tool in body.get("tools", ())]
    last_thing += [("system", block) for block in _list(body.get("system"))]
    for message in body.get("messages", ()):
        for block in _list(message["content"]):
            inside = block.get("content") if block["type"] == "tool_result" else ()
            last_thing += (
                [(inner["type"], inner) for inner in inside if isinstance(inner, dict)] if inside else []
            )
            last_thing.append((block["type"], block))
    marks = [(kind, thing) for kind, thing in last_thing if "cache_control" in thing] + marks
    if len(marks) > MARKS_MAX:
        yield f"A maximum of {MARKS_MAX} blocks with cache_control may be provided. Found {len(marks)}."
    lives = [thing["cache_control"].get("ttl", "5m") for _, thing in marks]
    if lives != sorted(lives):  # "1h" sorts before "5m"
        yield "a ttl='1h' mark comes after a ttl='5m' one"
    for kind, thing in marks:
        if kind in ("thinking", "redacted_thinking") or (kind == "text" and not thing["text"].strip()):
            yield f"a mark on {kind}"


def _second_opinion(body: Block, headers: Mapping[str, str], abilities: Abilities | None) -> list[str]:
    """What the simulator's own table says."""
    lower = {name.lower(): value for name, value in headers.items()}
    asked = RawRequest(
        path="/v1/messages", headers=lower, body=body, abilities=abilities or Abilities(sampling=False)
    )
    return [
        f"simulator: {rule.id}: {rule.wording.format(**found)}"
        for rule in list_rules("anthropic")
        if (found := rule.find(asked)) is not None
    ]


# OpenAI Responses -----------------------------------------------------------------------------------


def _responses(body: Block, handed: Handed, demands: Demands) -> Iterator[str]:
    items = body["input"]
    items = items if isinstance(items, list) else [{"type": "message", "role": "user", "content": items}]
    if not items:
        yield "nothing was asked"
    yield from _tool_names(
        [tool["name"] for tool in body.get("tools", ()) if tool["type"] == "function"], 128
    )
    called: dict[str, bool] = {}
    for place, item in enumerate(items):
        kind = item.get("type", "message")
        match kind:
            case "function_call":
                if item["call_id"] in called:
                    yield f"item {place}: call_id {item['call_id']} is used twice"
                called[item["call_id"]] = False
                most = UNLIMITED if item["call_id"] in handed.call_ids else 64
                yield from _call_shape(item["call_id"], item["name"], most, 128)
                if not isinstance(item["arguments"], str):
                    yield f"item {place}: arguments are no string"
            case "function_call_output":
                if called.get(item["call_id"]) is not False:
                    yield f"No tool call found for function call output with call_id {item['call_id']}."
                called[item["call_id"]] = True
                output = item["output"]
                for piece in output if isinstance(output, list) else ():
                    if piece["type"] not in ("input_text", "input_image", "input_file"):
                        yield f"item {place}: an output holds {piece['type']}"
                    if piece["type"] == "input_text" and not piece["text"].strip():
                        yield f"item {place}: blank text"
            case "message":
                yield from (f"item {place}: {what}" for what in _responses_message(item))
            case "reasoning":
                yield from _responses_thought(items, place, body, handed, demands)
            case _:
                yield f"item {place}: {kind} is not expected here"
    yield from (f"No tool output found for function call {id_}." for id_, done in called.items() if not done)
    yield from _responses_ids(items, handed)
    # Whatever was asked must be answered before the model or the user speaks again.
    waiting: set[str] = set()
    for item in items:
        match item.get("type", "message"):
            case "function_call":
                waiting.add(item["call_id"])
            case "function_call_output":
                waiting.discard(item["call_id"])
            case "message" if waiting and item["role"] != "assistant":
                yield f"somebody speaks before {sorted(waiting)} are answered"


def _responses_message(item: Block) -> Iterator[str]:
    role, content = item["role"], item["content"]
    if role not in ("user", "assistant", "system", "developer"):
        yield f"role {role}"
    said = ("output_text", "refusal") if role == "assistant" else ("input_text", "input_image", "input_file")
    pieces = content if isinstance(content, list) else [{"type": said[0], "text": content}]
    if not pieces:
        yield "empty content"
    for piece in pieces:
        if piece["type"] not in said:
            yield f"{piece['type']} in a message of the {role}"
        if not str(piece.get("text", piece.get("refusal", "."))).strip():
            yield "blank text"


def _responses_thought(
    items: list[Block], place: int, body: Block, handed: Handed, demands: Demands
) -> Iterator[str]:
    item = items[place]
    id_, blob = item.get("id", ""), item.get("encrypted_content")
    later = takewhile(lambda each: _is_output_item(each), items[place + 1 :])
    follower = next((each for each in later if each.get("type") != "reasoning"), None)
    if follower is None:
        yield f"Item '{id_}' of type 'reasoning' was provided without its required following item."
    elif id_ in handed.led_to and follower.get("id") != handed.led_to[id_]:
        yield f"Item '{id_}' is followed by {follower.get('id')}, not by its own {handed.led_to[id_]}"
    if "status" in item:
        yield "Unknown parameter: status of a reasoning item"
    if demands.strip:
        yield "reasoning input is not enabled for this model"
    if blob is None:
        if body.get("store") is False and id_:
            yield f"Item with id '{id_}' not found. Items are not persisted when `store` is set to false."
        if demands.signed:
            yield "reasoning without proof"
    elif blob not in handed.proofs:
        yield "The encrypted content could not be verified."
    elif handed.proofs[blob] != "".join(piece["text"] for piece in item.get("summary", ())):
        yield "reasoning cannot be modified"


def _responses_ids(items: list[Block], handed: Handed) -> Iterator[str]:
    ids = [item["id"] for item in items if "id" in item]
    for id_ in sorted({id_ for id_ in ids if ids.count(id_) > 1}):
        yield f"Duplicate item found with id {id_}."
    yield from (f"Item with id '{id_}' not found." for id_ in ids if id_ not in handed.item_ids)
    needs = {follower: thought for thought, follower in handed.led_to.items()}
    for id_ in ids:
        if id_ in needs and needs[id_] not in ids:
            yield f"Item '{id_}' was provided without its required 'reasoning' item: '{needs[id_]}'."


def _is_output_item(item: Block) -> bool:
    kind = item.get("type", "message")
    return kind in ("reasoning", "function_call") or (kind == "message" and item["role"] == "assistant")


# OpenAI Chat Completions ----------------------------------------------------------------------------


def _chat(body: Block, handed: Handed, demands: Demands) -> Iterator[str]:
    messages = body["messages"]
    yield from _tool_names([tool["function"]["name"] for tool in body.get("tools", ())])
    spoken = [message for message in messages if message["role"] not in ("system", "developer")]
    if not spoken:
        yield "no user query found in messages"
        return
    if spoken[-1]["role"] == "assistant":
        yield "the conversation ends with the model"
    waiting: list[str] = []
    used: set[str] = set()
    for place, message in enumerate(messages):
        role = message["role"]
        if role == "tool":
            if message["tool_call_id"] not in waiting:
                yield f"message {place}: role 'tool' must be a response to a preceeding message with 'tool_calls'"
            else:
                waiting.remove(message["tool_call_id"])
        elif waiting:
            yield f"message {place}: tool_call_ids did not have response messages: {waiting}"
            waiting = []
        yield from (f"message {place}: {what}" for what in _chat_content(message))
        if role == "assistant":
            yield from (f"message {place}: {what}" for what in _chat_thoughts(message, handed, demands))
            for call in message.get("tool_calls", ()):
                waiting.append(call["id"])
                if call["id"] in used:
                    yield f"message {place}: id {call['id']} is used twice"
                used.add(call["id"])
                most = UNLIMITED if call["id"] in handed.call_ids else CHAT_ID_LENGTH_MAX
                yield from _call_shape(call["id"], call["function"]["name"], most, 64)
                yield from _json_object(call["function"]["arguments"])
    if waiting:
        yield f"at the end: tool_call_ids did not have response messages: {waiting}"
    if demands.alternates:
        yield from _alternating(messages)


def _chat_content(message: Block) -> Iterator[str]:
    role, content = message["role"], message.get("content")
    if role not in ("system", "developer", "user", "assistant", "tool"):
        yield f"role {role}"
    if content is None:
        if not message.get("tool_calls"):
            yield "neither content nor calls"
        return
    pieces = content if isinstance(content, list) else [{"type": "text", "text": content}]
    if not pieces:
        yield "empty content"
    for piece in pieces:
        if piece["type"] == "text" and not piece["text"].strip() and not message.get("tool_calls"):
            yield "blank text"
        if role == "tool" and piece["type"] != "text":
            yield f"{piece['type']} in a result"
        if role == "assistant" and piece["type"] not in ("text", "refusal", "thinking"):
            yield f"{piece['type']} in a model's message"


def _chat_thoughts(message: Block, handed: Handed, demands: Demands) -> Iterator[str]:
    given = {name: message[name] for name in _CHAT_THOUGHTS if name in message}
    chunks = [p for p in _list(message.get("content")) if isinstance(p, dict) and p["type"] == "thinking"]
    if demands.strip and (given or chunks):
        yield "Reasoning input is not enabled for this model"
    ids = {call["id"] for call in message.get("tool_calls", ())}
    if demands.must_echo:
        if ids and not message.get("reasoning_content"):
            yield "The `reasoning_content` in the thinking mode must be passed back to the API."
        return
    for detail in given.pop("reasoning_details", ()):
        proof = detail.get("signature") or detail.get("data")
        if proof not in handed.proofs or handed.proofs[proof] != detail.get("text", ""):
            yield "a detail of reasoning that is not this endpoint's"
    for words in given.values():
        if words not in handed.thoughts:
            yield "reasoning that is not this endpoint's"


def _alternating(messages: list[Block]) -> Iterator[str]:
    """As chat templates count: system first, results and messages with calls left out."""
    if any(message["role"] in ("system", "developer") for message in messages[1:]):
        yield "a system message that is not the first"
    counted = [m["role"] for m in messages if m["role"] in ("user", "assistant") and not m.get("tool_calls")]
    if any(role != ("user", "assistant")[place % 2] for place, role in enumerate(counted)):
        yield f"conversation roles must alternate user/assistant/user/assistant/…: {counted}"


# Gemini ---------------------------------------------------------------------------------------------


def _gemini(body: Block, handed: Handed, demands: Demands) -> Iterator[str]:
    contents = body["contents"]
    if not contents:
        yield "contents are empty"
        return
    declared = [d["name"] for tool in body.get("tools", ()) for d in tool.get("functionDeclarations", ())]
    for name in declared:
        if not _GEMINI_NAME.fullmatch(name) or declared.count(name) > 1:
            yield f"tool name {name!r}"
    if contents[-1]["role"] != "user":
        yield "Please ensure that the conversation ends with a user turn"
    ids: list[str] = []
    before: Block = {"role": "", "parts": []}
    for place, content in enumerate(contents):
        calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
        answers = [part["functionResponse"] for part in content["parts"] if "functionResponse" in part]
        asked = [part["functionCall"] for part in before["parts"] if "functionCall" in part]
        ids += [call["id"] for call in calls if "id" in call]
        if calls and before["role"] != "user":
            yield f"content {place}: function call turn comes immediately after a user turn"
        if answers and not asked:
            yield f"content {place}: function response turn comes immediately after a function call turn"
        elif len(answers) != len(asked):
            yield f"content {place}: the number of function response parts is not that of the calls"
        else:
            pairs = zip(asked, answers, strict=True)
            if any((a["name"], a.get("id")) != (r["name"], r.get("id")) for a, r in pairs):
                yield f"content {place}: results are not in the order of their calls"
        yield from (f"content {place}: {what}" for what in _gemini_parts(content, handed, demands))
        before = content
    if any("functionCall" in part for part in before["parts"]):
        yield "calls without responses at the end"
    yield from (f"id {id_} is used twice" for id_ in sorted({i for i in ids if ids.count(i) > 1}))
    if any(a["role"] == b["role"] for a, b in pairwise(contents)):
        yield "two contents of one role in a row"
    if demands.signed:
        yield from _gemini_signatures(contents)


def _gemini_parts(content: Block, handed: Handed, demands: Demands) -> Iterator[str]:
    role = content["role"]
    if role not in ("user", "model"):
        yield f"role {role}"
    if not content["parts"]:
        yield "no parts"
    for part in content["parts"]:
        proof = part.get("thoughtSignature")
        what: Any = part.get("functionCall", part.get("text", ""))
        if isinstance(what, dict):
            what = {"name": what["name"], "args": what["args"]}
            if not _GEMINI_NAME.fullmatch(part["functionCall"]["name"]):
                yield f"call name {part['functionCall']['name']!r}"
        if proof is not None and not (proof == SENTINEL and "functionCall" in part):
            if proof not in handed.proofs:
                yield "Invalid thought signature: this endpoint never gave it"
            elif handed.proofs[proof] != what:
                yield "Invalid thought signature: it was given for something else"
        if part.keys() == {"text"} and not part["text"].strip():
            yield "blank text"
        if part.get("thought") and (demands.strip or (not proof and part["text"] not in handed.thoughts)):
            yield "a thought that is not this endpoint's"
        if ("functionCall" in part or part.get("thought")) and role != "model":
            yield "a call or thought that is not the model's"
        if "functionResponse" in part:
            if role != "user" or not isinstance(part["functionResponse"]["response"], dict):
                yield "a response that is no object of the user's"
            for inner in part["functionResponse"].get("parts", ()):
                if not inner.keys() & {"inlineData", "fileData"}:
                    yield "a response holds something that is no media"


def _gemini_signatures(contents: list[Block]) -> Iterator[str]:
    begins = max(
        (n for n, c in enumerate(contents) if c["role"] == "user" and any("text" in p for p in c["parts"])),
        default=0,
    )
    for place, content in enumerate(contents[begins:], begins):
        first = next((part for part in content["parts"] if "functionCall" in part), None)
        if first is not None and not first.get("thoughtSignature"):
            yield f"content {place}: Function call is missing a thought_signature"


# Bedrock Converse -----------------------------------------------------------------------------------


def _bedrock(body: Block, handed: Handed, demands: Demands) -> Iterator[str]:
    messages = body["messages"]
    roles = [message["role"] for message in messages]
    if not messages or any(role != ("user", "assistant")[n % 2] for n, role in enumerate(roles)):
        yield f"roles must alternate between user and assistant, the user first: {roles}"
    if roles[-1:] != ["user"]:
        yield "the conversation must end with a user message"
    tools = [tool["toolSpec"] for tool in body.get("toolConfig", {}).get("tools", ()) if "toolSpec" in tool]
    yield from _tool_names([tool["name"] for tool in tools])
    yield from ("an empty description" for tool in tools if tool.get("description") == "")
    if "none" in body.get("toolConfig", {}).get("toolChoice", {}):
        yield "toolChoice none"
    yield from ("system: blank text" for b in body.get("system", ()) if "text" in b and not b["text"].strip())
    asked = [
        (message["role"], [(b["toolUse"]["toolUseId"], b) for b in message["content"] if "toolUse" in b],
         [(b["toolResult"]["toolUseId"], b) for b in message["content"] if "toolResult" in b])
        for message in messages
    ]  # fmt: skip
    yield from _paired(asked)
    if any(calls or results for _, calls, results in asked) and not body.get("toolConfig", {}).get("tools"):
        yield "toolConfig is required when there are calls"
    for place, message in enumerate(messages):
        kinds = [next(iter(block)) for block in message["content"]]
        if not kinds:
            yield f"message {place}: empty content"
        if "toolResult" in kinds and kinds != sorted(kinds, key=lambda kind: kind != "toolResult"):
            yield f"message {place}: results do not come first"
        if kinds[-1:] == ["reasoningContent"]:
            yield f"message {place}: the final block is reasoning"
        for block in message["content"]:
            yield from (
                f"message {place}: {what}" for what in _bedrock_block(block, message["role"], handed, demands)
            )


def _bedrock_block(block: Block, role: str, handed: Handed, demands: Demands) -> Iterator[str]:
    match block:
        case {"text": str(text)}:
            if not text.strip():
                yield "blank text"
        case {"toolUse": {"toolUseId": id_, "name": name, "input": given}}:
            if role != "assistant" or not _BEDROCK_ID.fullmatch(id_) or not _NAME.fullmatch(name):
                yield f"a call that is not legal: {id_!r} {name!r}"
            if not isinstance(given, dict):
                yield "input is no object"
        case {"toolResult": {"content": content, **rest}}:
            if role != "user" or rest.get("status", "success") not in ("success", "error"):
                yield "a result that is not legal"
            if not content:
                yield "a result without content"
            for inner in content:
                yield from _bedrock_block(inner, role, handed, demands)
        case {"reasoningContent": {"reasoningText": {"text": text, **rest}}}:
            yield from _proven(rest.get("signature", ""), text, role, handed, demands)  # type: ignore[arg-type]
        case {"reasoningContent": {"redactedContent": proof}}:
            yield from _proven(proof, "", role, handed, demands)
        case {"image": {"format": "png" | "jpeg" | "gif" | "webp", "source": dict()}}:
            pass
        case {"json": _} | {"document": _} | {"cachePoint": _}:
            pass
        case _:
            yield f"a block nobody knows: {sorted(block)}"


# What several families have in common ----------------------------------------------------------------

Asking = list[tuple[str, list[tuple[str, Block]], list[tuple[str, Block]]]]


def _paired(turns: Asking) -> Iterator[str]:
    """Each call answered once and in the next turn, nothing else answered, no id used twice."""
    seen: set[str] = set()
    waiting: list[str] = []
    for number, (_, calls, results) in enumerate([*turns, ("", [], [])]):
        answers = [id_ for id_, _ in results]
        for id_ in dict.fromkeys(answers):
            if id_ not in waiting:
                yield f"turn {number}: unexpected result for {id_}: no such call in the turn before"
            elif answers.count(id_) > 1:
                yield f"turn {number}: multiple results for {id_}"
        if missing := [id_ for id_ in waiting if id_ not in answers]:
            yield f"turn {number}: calls were found without results immediately after: {missing}"
        waiting = [id_ for id_, _ in calls]
        for id_ in waiting:
            if id_ in seen:
                yield f"turn {number}: call ids must be unique: {id_}"
            seen.add(id_)


def _merge_turns(messages: list[Block]) -> list[tuple[str, list[Block]]]:
    turns: list[tuple[str, list[Block]]] = []
    for message in messages:
        if turns and turns[-1][0] == message["role"]:
            turns[-1][1].extend(_list(message["content"]))
        else:
            turns.append((message["role"], list(_list(message["content"]))))
    return turns


def _list(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())


def _tool_names(names: list[Any], length_max: int = 64) -> Iterator[str]:
    for name in names:
        if not _ID.fullmatch(name) or len(name) > length_max or names.count(name) > 1:
            yield f"tool name {name!r}"


UNLIMITED = 10_000
"""Gateways put state into ids: one that a server gave goes back to it, however long it is."""


def _call_shape(id_: str, name: str, id_max: int, name_max: int) -> Iterator[str]:
    if not 1 <= len(id_) <= id_max:
        yield f"string too long. Expected an id with maximum length {id_max}, but got {len(id_)}: {id_!r}"
    if not _ID.fullmatch(name) or len(name) > name_max:
        yield f"name {name!r} of a call"


def _json_object(text: str) -> Iterator[str]:
    try:
        read = json.loads(text)
    except ValueError:
        read = None
    if not isinstance(read, dict):
        yield f"arguments must be a JSON object string, got {text[:40]!r}"


def _texts(value: Any, place: str = "$") -> Iterator[tuple[str, str]]:
    match value:
        case str():
            yield place, value
        case list():
            for number, each in enumerate(value):
                yield from _texts(each, f"{place}[{number}]")
        case dict():
            for name, each in value.items():
                yield f"{place} (a name)", name
                yield from _texts(each, f"{place}.{name}")


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


_CHECKS = {
    "anthropic": _anthropic,
    "openai_responses": _responses,
    "openai_chat": _chat,
    "gemini": _gemini,
    "bedrock_converse": _bedrock,
}
