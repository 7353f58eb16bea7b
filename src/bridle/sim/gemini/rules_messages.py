"""Rules about contents: text, roles, and a response for every call.

Neighbouring contents of one side are one turn, so calls and their responses may be spread over several
contents. A call without a response is accepted if no function is declared, as recorded conversations show.
"""

import re
from collections.abc import Iterator
from itertools import pairwise

from bridle.sim.rules.engine import RawRequest, RuleFinding
from bridle.sim.rules.media_data import recognize_data
from bridle.sim.rules.raw_request import JsonObject, as_mapping

from .request import (
    ContentTurn,
    as_list,
    contents,
    has_thinking_levels,
    is_user_content,
    list_declarations,
    member,
    merge_turns,
    parts,
    rule,
    to_snake_case,
)
from .rules_fields import refuse

ROLES = ("user", "model")
OLD_ROLES = ("function", "tool")
PARTS = "contents[].parts[]"
DATA_MEMBERS = (
    "text", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode",
    "codeExecutionResult", "toolCall", "toolResponse",
)  # fmt: skip
PART_MEMBERS = (
    *DATA_MEMBERS, "thought", "thoughtSignature", "videoMetadata", "mediaResolution", "partMetadata",
    "audioTranscription",
)  # fmt: skip
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]*={0,2}")
_NO_BASE64 = "Invalid value at '{at}.{member}' (TYPE_BYTES), Base64 decoding failed for \"{data}\""
_NO_STRUCT = "Invalid value at '{at}.{member}' (type.googleapis.com/google.protobuf.Struct), {value}"
_ORPHAN = "Please ensure that function response turn comes immediately after a function call turn."
_COUNT = (
    "Please ensure that the number of function response parts is equal to the number of function call parts"
    " of the function call turn."
)
_UNSIGNED = (
    "Function call is missing a thought_signature in functionCall parts. This is required for tools to work"
    " correctly, and missing thought_signature may lead to degraded model performance. Additional data,"
    " function call `default_api:{name}` , position {position}. Please refer to"
    " https://ai.google.dev/gemini-api/docs/thought-signatures for more details."
)


def _find_unknown_member(part: JsonObject) -> RuleFinding | None:
    unknown = (name for name in part if not any(member({name: True}, known) for known in PART_MEMBERS))
    return next(({"name": name} for name in unknown), None)


def _find_bad_bytes(part: JsonObject) -> RuleFinding | None:
    values = {
        "inline_data.data": as_mapping(member(part, "inlineData")).get("data"),
        "thought_signature": member(part, "thoughtSignature"),
    }
    for path, data in values.items():
        if isinstance(data, str) and not (_BASE64.fullmatch(data) and len(data.rstrip("=")) % 4 != 1):
            return {"member": path, "data": data}
    return None


def _find_bad_struct(part: JsonObject) -> RuleFinding | None:
    values = {
        "function_call.args": as_mapping(member(part, "functionCall")).get("args"),
        "function_response.response": as_mapping(member(part, "functionResponse")).get("response"),
    }
    for path, value in values.items():
        if value is not None and not isinstance(value, dict):
            return {"member": path, "value": f'"{value}"'}
    return None


def _find_nameless(part: JsonObject) -> RuleFinding | None:
    for name in ("functionCall", "functionResponse"):
        value = member(part, name)
        if isinstance(value, dict) and not value.get("name"):
            return {"member": to_snake_case(name)}
    return None


def _check_call_first(request: RawRequest) -> RuleFinding | None:
    turns = merge_turns(request)
    return {} if turns and turns[0].is_model and turns[0].members_named("functionCall") else None


def _pair_turns(request: RawRequest) -> Iterator[tuple[ContentTurn, ContentTurn]]:
    yield from pairwise(merge_turns(request))


def _check_response_orphan(request: RawRequest) -> RuleFinding | None:
    turns = merge_turns(request)
    if turns and turns[0].members_named("functionResponse"):
        return {}
    for before, turn in _pair_turns(request):
        if turn.members_named("functionResponse") and not before.members_named("functionCall"):
            return {}
    return None


def _check_response_count(request: RawRequest) -> RuleFinding | None:
    declared = any(True for _ in list_declarations(request))
    for before, turn in _pair_turns(request):
        called, answered = before.members_named("functionCall"), turn.members_named("functionResponse")
        if len(called) != len(answered) and (answered or declared):
            return {}
    return None


def _check_call_signed(request: RawRequest) -> RuleFinding | None:
    """Check the signature of the first call of each turn since the last user message.

    A turn may be spread over several contents: google-genai sends every chunk of a stream back as one.
    """
    if not has_thinking_levels(request):
        return None
    sent = list(enumerate(contents(request)))
    spoke = [index for index, content in sent if is_user_content(content)]
    called = False
    for index, content in sent[max(spoke, default=None) :]:
        if content.get("role") != "model":
            called = False
            continue
        calls = [part for part in parts(content) if member(part, "functionCall") is not None]
        if calls and not called and not member(calls[0], "thoughtSignature"):
            name = as_mapping(member(calls[0], "functionCall")).get("name")
            return {"name": name, "position": index + 1}
        called = called or bool(calls)
    return None


CONTENT_RULES = (
    refuse(
        "contents-some",
        "",
        lambda body: not as_list(member(body, "contents")),
        "* GenerateContentRequest.contents: contents is not specified\n",
        evidence="S",
    ),
    refuse(
        "parts-some",
        "contents[]",
        lambda content: not parts(content),
        "* GenerateContentRequest.contents[{index}].parts: contents.parts must not be empty.\n",
        evidence="S",
    ),
    refuse(
        "part-member",
        PARTS,
        _find_unknown_member,
        "Invalid JSON payload received. Unknown name \"{name}\" at '{at}': Cannot find field.",
        evidence="S",
    ),
    refuse(
        "part-data",
        PARTS,
        lambda part: all(member(part, name) is None for name in (*DATA_MEMBERS, "thoughtSignature")),
        "* GenerateContentRequest.{at}.data: required oneof field 'data' must have one initialized field\n",
        evidence="S",
    ),
    refuse(
        "role",
        "contents[]",
        lambda content: content.get("role") not in (None, *ROLES, *OLD_ROLES),
        "Please use a valid role: user, model.",
        evidence="S",
    ),
    refuse(
        "role-function",
        "contents[]",
        lambda content: {"role": content["role"]} if content.get("role") in OLD_ROLES else None,
        "Role '{role}' is not supported. Please use a valid role: SYSTEM, SYSTEM_1, USER, ASSISTANT,"
        " DEVELOPER, CONTEXT, USER_CONTEXT, MODEL, USER.",
        evidence="S",
        models="that think at levels",
        when=lambda able: able.efforts,
    ),
    refuse("bytes", PARTS, _find_bad_bytes, _NO_BASE64, evidence="S"),
    refuse("struct", PARTS, _find_bad_struct, _NO_STRUCT, evidence="F"),
    refuse(
        "name-empty",
        PARTS,
        _find_nameless,
        "* GenerateContentRequest.{at}.{member}.name: Name cannot be empty.\n",
        evidence="F",
    ),
    rule(
        "call-first",
        _check_call_first,
        "Please ensure that function call turn comes immediately after a user turn or after a function"
        " response turn.",
        evidence="S",
    ),
    rule("response-orphan", _check_response_orphan, _ORPHAN, evidence="S"),
    rule("response-count", _check_response_count, _COUNT, evidence="S"),
    rule("call-signed", _check_call_signed, _UNSIGNED, evidence="S", models="that think at levels"),
)


def _is_no_image(part: JsonObject) -> bool:
    """True for an image that is no image; one labelled as another image type is accepted."""
    blob = as_mapping(member(part, "inlineData"))
    shown = recognize_data(member(blob, "data"))
    is_other = shown != "" and not shown.startswith("image/")
    return is_other and str(member(blob, "mimeType")).startswith("image/")


MEDIA_RULES = (
    refuse(
        "image-data",
        PARTS,
        _is_no_image,
        "Unable to process input image. Please retry or report in"
        " https://developers.generativeai.google/guide/troubleshooting",
        evidence="S",
    ),
)
