"""A request for each field of a vendor's request types, and what became of the field on the other side of a gateway.

The types are those of `vendor_shapes.json`.  A field is a member of a shape that a request can reach.  By default the
shortest way to the shape is taken and one value; `everywhere`, each member that holds the shape, and each value and type
that the member may have.  Each request is as small as the types allow, with the field filled and, if the field is in a
message, with the messages around it that make a conversation.
"""

import base64
import json
import re
from collections import deque
from typing import Any, NamedTuple

from tests.wire.vendors.vendor_shapes import load_shapes

SENTINEL = "zqfield"
NUMBER, FRACTION = 37, 0.37
ROOTS = {
    "anthropic": ("anthropic", "anthropic beta"),
    "openai_chat": ("openai_chat",),
    "openai_responses": ("openai_responses",),
    "gemini": ("gemini",),
}
MODEL_NAME = "any"
BASES: dict[str, Any] = {
    "anthropic": {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 500},
    "openai_chat": {"messages": [{"role": "user", "content": "hello"}]},
    "openai_responses": {"input": "hello"},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "hello"}]}]},
}
NAMELESS = frozenset({"type", "role"})
"""Members that say what an object is; the object is compared by its other members."""


PDF = "data:application/pdf;base64," + base64.b64encode(b"%PDF-1.4 zqfield").decode()
SCHEMA = {
    "type": "object", "properties": {"zqfield0": {"type": "string"}}, "required": ["zqfield0"],
    "additionalProperties": False,
}  # fmt: skip
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
VALUES = {
    "data": PNG,
    "parallel_tool_calls": False,
    "reasoning_effort": "low",
    "effort": "low",
    "thinkingLevel": "LOW",
    "file_data": PDF,
    "image_url": "https://example.com/zqfield.png",
    "fileUri": "https://example.com/zqfield.png",
    "mimeType": "image/png",
    "media_type": "image/png",
    "arguments": '{"a":"zqfield0"}',
    "responseMimeType": "application/json",
    "schema": SCHEMA,
    "parametersJsonSchema": SCHEMA,
    "responseJsonSchema": SCHEMA,
    "input_schema": SCHEMA,
    "parameters": SCHEMA,
    "tool_choice": {"type": "any"},
    "truncation": "auto",
}
"""Values of members that are checked, or of which the others are the default."""
DEFAULTS = (
    ("background", False), ("parallel_tool_calls", True), ("truncation", "disabled"), ("is_error", False),
    ("tool_choice", "auto"), ("tool_choice", {"type": "auto"}), ("disable_parallel_tool_use", False),
    ("mode", "AUTO"), ("mode", "MODE_UNSPECIFIED"), ("thinkingLevel", "THINKING_LEVEL_UNSPECIFIED"),
)  # fmt: skip
"""Members with the value that they have anyway."""
REQUIRED = {"arguments": "{}", "data": PNG, "schema": SCHEMA, "input_schema": SCHEMA}
ALIASES = {"max_tokens": ("max_completion_tokens",)}
"""Other names of a member under which it may arrive."""
WORDS = {
    "input_audio": "audio", "file": "document", "image_url": "image", "input_image": "image", "input_file": "document",
    "reasoning_effort": "effort", "thinkingLevel": "effort", "top_p": "sampling", "temperature": "sampling", "top_k": "sampling",
    "tool_choice": "choice", "thinkingBudget": "allowance", "budget_tokens": "allowance",
}  # fmt: skip
"""Words of our sentences for members and for types of parts."""
NEED_TOOLS = frozenset({"parallel_tool_calls", "tool_choice", "toolConfig"})
TOOLS = {
    "anthropic": [{"name": "look", "input_schema": {"type": "object", "properties": {}}}],
    "openai_chat": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}],
    "openai_responses": [
        {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": False}
    ],
    "gemini": [{"functionDeclarations": [{"name": "look"}]}],
}


class Field(NamedTuple):
    wire: str
    path: tuple
    """Names of members from the root; `[]` for an item of a list, `*` for a free name, a node for an alternative."""
    member: str
    node: Any
    value: Any

    @property
    def name(self):
        shown = ".".join(step for step in self.path if not step.startswith(("|", "[", "*")))
        return f"{shown}.{self.member}".lstrip(".")


class FieldMaker:
    """Values of the types, as small as they can be."""

    def __init__(self):
        self.shapes, self.count = load_shapes()["shapes"], 0

    def shape(self, node):
        return self.shapes[node.removeprefix("#")]

    def members(self, node):
        said = self.shape(node)
        return {**said.get("req", {}), **said.get("opt", {})}

    def smallest(self, node, depth=0):
        if isinstance(node, str):
            return self.of_shape(node, depth) if node.startswith("#") else self.plain(node)
        kind, *inner = node
        match kind:
            case "=":
                return inner[0]
            case "[]":
                return [] if depth > 6 else [self.smallest(inner[0], depth + 1)]
            case "{}":
                return {"k": self.smallest(inner[0], depth + 1)}
        return self.smallest(min(inner, key=self.size), depth + 1)

    def size(self, node):
        """Plain values first, then lists, then shapes with few members."""
        if isinstance(node, str):
            if not node.startswith("#"):
                return 5 if node == "null" else 0
            return 10 + len(self.shape(node).get("req", {}))
        return {"=": 0, "[]": 3, "{}": 4}.get(node[0], 6)

    def of_shape(self, name, depth):
        said = self.shape(name)
        if said.get("one"):
            member, node = next(iter(said["opt"].items()))
            return {member: self.smallest(node, depth + 1)}
        required = said.get("req", {}).items()
        return {member: REQUIRED.get(member) or self.smallest(node, depth + 1) for member, node in required}

    def plain(self, node):
        match node:
            case "str":
                return "word"
            case "int":
                return 2048
            case "num":
                return 1
            case "bool":
                return False
            case "b64":
                return base64.b64encode(b"word").decode()
            case "any":
                return {"a": 1}
        return None

    def filled(self, node):
        """A value of a field that can be recognized on the other side."""
        self.count += 1
        mark = f"{SENTINEL}{self.count}"
        if isinstance(node, str):
            plain = {
                "str": mark,
                "int": NUMBER,
                "num": FRACTION,
                "bool": True,
                "any": {mark: mark},
                "null": None,
            }
            if node == "b64":
                return base64.b64encode(mark.encode()).decode()
            return plain[node] if node in plain else self.marked(node, mark) or self.with_one(node)
        kind, *inner = node
        match kind:
            case "=":
                return inner[-1]
            case "[]":
                return [self.filled(inner[0])]
            case "{}":
                return {"k": self.filled(inner[0])}
        return self.filled(min((each for each in inner if each != "null"), key=self.size))

    def marked(self, name, mark):
        """A shape with its required members, whose texts can be recognized."""
        return json.loads(json.dumps(self.of_shape(name, 0)).replace('"word"', f'"{mark}"'))

    def with_one(self, name):
        """A shape without required members, with one of the others."""
        members = self.members(name)
        members = {member: node for member, node in members.items() if member not in NAMELESS}
        plain = [member for member, node in members.items() if not is_nested(node)]
        chosen = next(iter(plain or members), None)
        value = {"mode": "ANY", **VALUES}.get(chosen) or self.smallest(members[chosen]) if chosen else None
        return {chosen: value} if chosen else {}

    def build(self, node, path, member, value):
        """The smallest value of a node that has a field at a path."""
        if isinstance(node, str) and node.startswith("#"):
            if path == ():
                return (
                    {**self.of_shape(node, 0), member: value}
                    if not self.shape(node).get("one")
                    else {member: value}
                )
            step, *rest = path
            inside = self.build(self.members(node)[step], tuple(rest), member, value)
            made = {} if self.shape(node).get("one") else self.of_shape(node, 0)
            return {**made, step: inside}
        kind, *inner = node
        match kind:
            case "[]":
                return [self.build(inner[0], path[1:], member, value)]
            case "{}":
                return {"k": self.build(inner[0], path[1:], member, value)}
        return self.build(json.loads(path[0][1:]), path[1:], member, value)


def list_fields(wire, *, everywhere=False):
    """The fields of a wire's requests: path, member and its type.

    Each shape by its shortest way from the root; `everywhere`, by each member that holds it.
    """
    maker, seen, opened, found = FieldMaker(), set(), set(), []
    left: Any = deque((load_shapes()["roots"][root], (), "") for root in ROOTS[wire])
    while left:
        node, path, holder = left.popleft()
        if isinstance(node, list):
            kind, *inner = node
            if kind == "[]":
                left.append((inner[0], (*path, "[]"), holder))
            elif kind == "{}":
                left.append((inner[0], (*path, "*"), holder))
            elif kind == "|":
                left += [(each, (*path, "|" + json.dumps(each)), holder) for each in inner if is_nested(each)]
            continue
        place = (node, holder) if everywhere else node
        if not node.startswith("#") or place in seen:
            continue
        seen.add(place)
        for member, inside in maker.members(node).items():
            found.append((path, member, inside))
            if is_nested(inside) and node not in opened:
                left.append((inside, (*path, member), f"{node}.{member}"))
        opened.add(node)
    return found


def is_nested(node):
    return (isinstance(node, list) and node[0] != "=") or (isinstance(node, str) and node.startswith("#"))


def list_values(maker, member, node, *, everywhere=False):
    """A value of a field; `everywhere`, one of each type that it may have, and every literal."""
    nodes = [each for each in node[1:] if each != "null"] if everywhere and node[0] == "|" else [node]
    for each in nodes:
        if everywhere and (each == "bool" or each[0] == "="):
            yield from (True, False) if each == "bool" else each[1:]
            continue
        value, fixed = maker.filled(each), VALUES.get(member)
        yield fixed if type(fixed) is type(value) else value


def is_default(member, value):
    """True if a request without the member means the same."""
    return any(member == name and value == each for name, each in DEFAULTS)


def make_body(maker, wire, field):
    """A request that has the field, as a conversation that ends with something new."""
    root = next(
        (node for node in map(load_shapes()["roots"].get, ROOTS[wire]) if can_reach(maker, node, field.path)),
        None,
    )
    body = maker.build(root, field.path, field.member, field.value)
    body = {**BASES[wire], **body} if is_outside(wire, field) else {**body, **rest_of(wire, body)}
    if wire != "gemini":
        body["model"] = MODEL_NAME
    if field.member != "stream":
        body.pop("stream", None)
    if NEED_TOOLS & {field.member, *field.path} and "tools" not in body:
        body["tools"] = TOOLS[wire]
    return COMPLETE[wire](body)


def can_reach(maker, node, path):
    try:
        maker.build(node, path, "x", 1)
    except (KeyError, IndexError, ValueError, TypeError, AttributeError):
        return False
    return True


def is_outside(wire, field):
    first = next((step for step in (*field.path, field.member) if not step.startswith("|")), "")
    return first not in BASES[wire]


def rest_of(wire, body):
    return {name: value for name, value in BASES[wire].items() if name not in body}


OF_MODEL = ("thinking", "redacted_thinking", "tool_use", "server_tool_use", "compaction")


def complete_anthropic(body):
    done = []
    for message in body["messages"]:
        content = message.get("content") or "hello"
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        uses = [block for block in blocks if block.get("type") == "tool_use"]
        results = [block for block in blocks if block.get("type") == "tool_result"]
        if results:
            done.append({"role": "user", "content": "hello"})
            calls = [
                {"type": "tool_use", "id": block["tool_use_id"], "name": "look", "input": {}}
                for block in results
            ]
            done.append({"role": "assistant", "content": calls})
        elif message["role"] == "assistant":
            done.append({"role": "user", "content": "hello"})
        if any(block.get("type") in OF_MODEL for block in blocks):
            message = {**message, "role": "assistant"}
            done.append({"role": "user", "content": "hello"})
            if not uses:
                blocks = [*blocks, {"type": "text", "text": "said"}]
        done.append({**message, "content": blocks})
        if uses:
            answers = [
                {"type": "tool_result", "tool_use_id": block["id"], "content": "seen"} for block in uses
            ]
            done.append({"role": "user", "content": answers})
        elif message["role"] != "user":
            done.append({"role": "user", "content": "go on"})
    return {**body, "messages": done}


def complete_chat(body):
    done = []
    for message in body["messages"]:
        role = message["role"]
        if role == "tool":
            call = {
                "id": message["tool_call_id"], "type": "function", "function": {"name": "look", "arguments": "{}"},
            }  # fmt: skip
            done += [{"role": "user", "content": "hello"}, {"role": "assistant", "tool_calls": [call]}]
        elif role == "function":
            call = {"name": message["name"], "arguments": "{}"}
            done += [{"role": "user", "content": "hello"}, {"role": "assistant", "function_call": call}]
        elif role == "assistant":
            done.append({"role": "user", "content": "hello"})
            if message.keys().isdisjoint(("content", "tool_calls", "function_call", "refusal", "audio")):
                message["content"] = "said"
        done.append(message)
        calls = message.get("tool_calls") or []
        done += [{"role": "tool", "tool_call_id": each["id"], "content": "seen"} for each in calls]
        if message.get("function_call"):
            done.append({"role": "function", "name": message["function_call"]["name"], "content": "seen"})
        elif role in ("assistant", "system", "developer") and not calls:
            done.append({"role": "user", "content": "go on"})
    return {**body, "messages": done}


def complete_responses(body):
    items = body["input"] if isinstance(body.get("input"), list) else []
    if not items:
        return {**body, "input": body.get("input") or "hello"}
    done = []
    for item in items:
        kind = item.get("type", "message")
        if kind in ("function_call_output", "custom_tool_call_output", "function_call", "custom_tool_call"):
            item.setdefault("call_id", "c1")
        if kind.startswith(("function", "custom")) and kind.endswith("_output"):
            item.setdefault("output", "seen")
        if kind in ("function_call_output", "custom_tool_call_output"):
            base = kind.removesuffix("_output")
            words = {"arguments": "{}"} if kind.startswith("function") else {"input": "x"}
            done += [{"role": "user", "content": "hello"}]
            done.append({"type": base, "call_id": item["call_id"], "name": "look", **words})
        done.append(item)
        if kind == "reasoning":
            said = {"type": "output_text", "text": "said", "annotations": []}
            about = {"id": "msg_1", "status": "completed", "role": "assistant"}
            done.append({"type": "message", **about, "content": [said]})
        if kind in ("function_call", "custom_tool_call"):
            done.append({"type": f"{kind}_output", "call_id": item["call_id"], "output": "seen"})
        elif (not (kind == "message" and item.get("role") == "user") and not kind.endswith("_output")) or (
            kind.endswith("_output") and not kind.startswith(("function", "custom"))
        ):
            done.append({"role": "user", "content": "go on"})
    return {**body, "input": done}


def complete_gemini(body):
    done = []
    for tool in body.get("tools", []):
        for declared in tool.get("functionDeclarations", []):
            declared.setdefault("name", "look")
    given = body["contents"] if isinstance(body["contents"], list) else [body["contents"]]
    for content in given:
        parts = content.get("parts") or [{"text": "hello"}]
        answers = [part["functionResponse"] for part in parts if "functionResponse" in part]
        if answers:
            calls = [{"functionCall": {"name": each.get("name", "look"), "args": {}}} for each in answers]
            done += [{"role": "user", "parts": [{"text": "hello"}]}, {"role": "model", "parts": calls}]
            answers[0].setdefault("name", "look")
        is_call = any("functionCall" in part or part.get("thought") for part in parts)
        role = "model" if is_call else content.get("role", "user")
        role = role if role in ("user", "model") else "user"
        done.append({**content, "role": role, "parts": parts})
        if role == "model":
            calls = [part["functionCall"] for part in parts if "functionCall" in part]
            for each in calls:
                each.setdefault("name", "look")  # type: ignore[arg-type]
            more = [
                {"functionResponse": {"name": each["name"], "response": {"output": "seen"}}} for each in calls
            ]
            done.append({"role": "user", "parts": more or [{"text": "go on"}]})
    return {**body, "contents": done}


COMPLETE = {
    "anthropic": complete_anthropic,
    "openai_chat": complete_chat,
    "openai_responses": complete_responses,
    "gemini": complete_gemini,
}


def is_present(body, member, value):
    """Whether a body has a member of this name with this value, or the words of the value anywhere."""
    names = (member, *ALIASES.get(member, ()))
    if any(is_contained(each, value) for name in names for each in find_members(body, camel(name))):
        return True
    marks = re.findall(rf"{SENTINEL}\d+", json.dumps(value))
    text = json.dumps(body)
    return bool(marks) and all(mark in text for mark in marks)


def camel(name):
    return re.sub(r"_+([a-z0-9])", lambda found: found[1].upper(), name)


def find_members(value, member):
    if isinstance(value, dict):
        for name, inner in value.items():
            if camel(name) == member:
                yield inner
            yield from find_members(inner, member)
    elif isinstance(value, list):
        for inner in value:
            yield from find_members(inner, member)


def is_contained(sent, given):
    """Whether everything that was given is in what was sent."""
    if isinstance(given, dict):
        found = {camel(name): inner for name, inner in sent.items()} if isinstance(sent, dict) else {}
        return all(
            inner is None or (camel(name) in found and is_contained(found[camel(name)], inner))
            for name, inner in given.items()
        )
    if isinstance(given, list):
        if not isinstance(sent, list):
            return len(given) == 1 and is_contained(sent, given[0])
        return all(any(is_contained(each, inner) for each in sent) for inner in given)
    if isinstance(given, str) and isinstance(sent, list):
        return any(isinstance(each, dict) and each.get("text") == given for each in sent)
    if isinstance(given, bool) or isinstance(sent, bool):
        return sent is given
    return sent == given or (
        isinstance(given, str) and isinstance(sent, str) and given.lower() == sent.lower()
    )


def is_named(told, field, body):
    """Whether a text names the field, or an object around it by its type or name."""
    words = set(re.findall(r"[A-Za-z0-9_]+", told))
    around = {step for step in field.path if not step.startswith(("|", "[", "*"))}
    kinds = {
        inner[key]
        for inner in find_objects(body)
        if any(True for _ in find_members(inner, camel(field.member)))
        for key in ("type", "name")
        if isinstance(inner.get(key), str)
    }
    inside = {
        each[key]
        for each in find_objects(field.value)
        for key in ("type", "name")
        if isinstance(each.get(key), str)
    }
    inside |= {name for each in find_objects(field.value) for name in each}
    meant = {field.member, camel(field.member), *kinds, *around, *inside}
    if isinstance(field.value, str) and SENTINEL in field.value and field.value in words:
        return True
    return not words.isdisjoint({*meant, *(WORDS[each] for each in meant if each in WORDS)})


def find_objects(value):
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from find_objects(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from find_objects(inner)
