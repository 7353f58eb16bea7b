"""Canonical form of Gemini requests: equal for two requests that the provider treats alike.

Each rule is a claim about the provider, taken from its documentation and recorded traffic:

  - names may be in camel case or with underscores, enumeration values in either case
  - one object equals a list of one; a content without a role, or with role `function` or `tool`, is the user's
  - adjacent contents of one side equal one content; a response in it is matched to its call by id, then by name,
    then by position
  - data may be in either alphabet of base64, with or without padding
  - null, `thought: false`, empty objects and lists, and blank text without a signature equal an absent field
  - the role of the system instruction has no effect; nor has tool choice `AUTO`, or any choice without tools
  - it does not matter which tool object declares a tool
  - the path names the model and requests a stream; the framing of the stream is not part of the content

Only checks use these forms; requests are never sent in them.
"""

from itertools import groupby
from typing import Any

from bridle.ports.codec import HttpRequest
from bridle.providers.gemini.decode_request import parse_path
from bridle.providers.gemini.parts import SIGNATURE, Block, to_camel_case
from bridle.providers.gemini.tools import DECLARATIONS
from bridle.providers.wire.json import loads

_USER_OBJECTS = frozenset(
    {
        "args",
        "response",
        "parameters",
        "parametersJsonSchema",
        "responseSchema",
        "responseJsonSchema",
        "labels",
    }
)
"""Members whose content belongs to the user and stays as written."""
_USER_ROLES = {None: "user", "function": "user", "tool": "user"}
_EMPTY_VALUES: tuple[object, ...] = (None, [], {}, "")


def canonical_request(request: HttpRequest) -> object:
    body: Block = _canonical_value(loads(request.body))
    body["model"], body["stream"] = parse_path(request.path)
    system = body.get("systemInstruction")
    system = {"parts": [{"text": system}]} if isinstance(system, str) else system or {}
    body["systemInstruction"] = _canonical_parts(system.get("parts"))
    body["contents"] = _canonical_contents(body.get("contents"))
    body["tools"] = _canonical_tools(body.get("tools"))
    body["toolConfig"] = _canonical_tool_config(body.get("toolConfig", {}), body["tools"])
    body["generationConfig"] = _canonical_generation_config(body.get("generationConfig", {}))
    return {name: value for name, value in body.items() if value not in _EMPTY_VALUES}


def _canonical_value(value: Any) -> Any:
    if isinstance(value, list):
        return [_canonical_value(each) for each in value]
    if not isinstance(value, dict):
        return value
    named = {to_camel_case(name): inner for name, inner in value.items() if inner is not None}
    return {
        name: inner if name in _USER_OBJECTS else _canonical_value(inner) for name, inner in named.items()
    }


def _canonical_contents(contents: Any) -> list[Block]:
    said = [
        (_USER_ROLES.get(role := content.get("role"), role), _canonical_parts(content.get("parts")))
        for content in _to_list(contents)
    ]
    turns = []
    for role, group in groupby((turn for turn in said if turn[1]), lambda turn: turn[0]):
        parts = [part for _, each in group for part in each]
        turns.append({"role": role, "parts": sorted(parts, key=_response_sort_key)})
    return turns


def _response_sort_key(part: Block) -> tuple[bool, str, str]:
    """Sort key that puts responses first, in the order in which they match their calls."""
    response = part.get("functionResponse")
    if not isinstance(response, dict):
        return True, "", ""
    return False, str(response.get("id") or ""), str(response.get("name") or "")


def _canonical_parts(parts: Any) -> list[Block]:
    return [plain for part in _to_list(parts) if (plain := _canonical_part(part))]


def _canonical_part(part: Block) -> Block | None:
    plain = {name: value for name, value in part.items() if not (name == "thought" and value is False)}
    if plain.keys() == {"text"} and not plain["text"].strip():
        return None
    if plain.keys() == {"text", SIGNATURE} and plain["text"] == "":
        del plain["text"]
    if isinstance(inline := plain.get("inlineData"), dict) and isinstance(data := inline.get("data"), str):
        standard = data.replace("-", "+").replace("_", "/").rstrip("=")
        plain["inlineData"] = {**inline, "data": standard}
    for name in ("functionCall", "functionResponse"):
        if isinstance(inner := plain.get(name), dict):
            plain[name] = {key: value for key, value in inner.items() if value not in _EMPTY_VALUES}
    return plain


def _canonical_tools(tools: Any) -> list[Any]:
    declared: list[Any] = []
    hosted: list[Any] = []
    for tool in _to_list(tools):
        for name, value in tool.items():
            if name == DECLARATIONS:
                declared += [_drop_empty(each) for each in _to_list(value)]
            else:
                hosted.append({name: value})
    return declared + sorted(hosted, key=lambda tool: next(iter(tool)))


def _canonical_tool_config(config: Block, tools: list[Any]) -> Block:
    plain = dict(config)
    choice = _drop_empty(plain.pop("functionCallingConfig", {}))
    if isinstance(choice.get("mode"), str):
        choice["mode"] = choice["mode"].upper()
    if choice.get("mode") in ("AUTO", "MODE_UNSPECIFIED"):
        del choice["mode"]
    if choice and tools:
        plain["functionCallingConfig"] = choice
    return plain


def _canonical_generation_config(config: Block) -> Block:
    plain = _drop_empty(config)
    thinking = plain.get("thinkingConfig")
    if isinstance(thinking, dict) and isinstance(level := thinking.get("thinkingLevel"), str):
        plain["thinkingConfig"] = {**thinking, "thinkingLevel": level.upper()}
    return plain


def _to_list(value: Any) -> list[Any]:
    return [value] if isinstance(value, dict) else list(value or ())


def _drop_empty(members: Block) -> Block:
    return {name: value for name, value in members.items() if value not in _EMPTY_VALUES}
