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
    contents,
    has_thinking_levels,
    list_declarations,
    list_parts,
    member,
    merge_turns,
    parts,
    rule,
)

ROLES = ("user", "model")
OLD_ROLES = ("function", "tool")
DATA_MEMBERS = [
    "text",
    "inlineData",
    "fileData",
    "functionCall",
    "functionResponse",
    "executableCode",
    "codeExecutionResult",
    "toolCall",
    "toolResponse",
]
EXTRA_MEMBERS = [
    "thought",
    "thoughtSignature",
    "videoMetadata",
    "mediaResolution",
    "partMetadata",
    "audioTranscription",
]
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]*={0,2}")
_NO_BASE64 = "Invalid value at '{at}' (TYPE_BYTES), Base64 decoding failed for \"{data}\""
_STRUCT = "type.googleapis.com/google.protobuf.Struct"
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


def _check_contents_some(request: RawRequest) -> RuleFinding | None:
    return None if contents(request) else {}


def _check_parts_some(request: RawRequest) -> RuleFinding | None:
    for index, content in enumerate(contents(request)):
        if not parts(content):
            return {"index": index}
    return None


def _check_part_member(request: RawRequest) -> RuleFinding | None:
    for place, part in list_parts(request):
        for name in part:
            if not any(member({name: True}, known) for known in (*DATA_MEMBERS, *EXTRA_MEMBERS)):
                return {"at": place, "name": name}
    return None


def _check_part_data(request: RawRequest) -> RuleFinding | None:
    for place, part in list_parts(request):
        says = any(member(part, name) is not None for name in (*DATA_MEMBERS, "thoughtSignature"))
        if not says:
            return {"at": place}
    return None


def _check_role(request: RawRequest) -> RuleFinding | None:
    for content in contents(request):
        if content.get("role") not in (None, *ROLES, *OLD_ROLES):
            return {}
    return None


def _check_role_function(request: RawRequest) -> RuleFinding | None:
    for content in contents(request):
        if has_thinking_levels(request) and content.get("role") in OLD_ROLES:
            return {"role": content.get("role")}
    return None


def _list_byte_fields(request: RawRequest) -> Iterator[tuple[str, object]]:
    for place, part in list_parts(request):
        yield f"{place}.inline_data.data", as_mapping(member(part, "inlineData")).get("data")
        yield f"{place}.thought_signature", member(part, "thoughtSignature")


def _check_bytes(request: RawRequest) -> RuleFinding | None:
    for place, data in _list_byte_fields(request):
        if isinstance(data, str) and not (_BASE64.fullmatch(data) and len(data.rstrip("=")) % 4 != 1):
            return {"at": place, "data": data}
    return None


def _check_struct(request: RawRequest) -> RuleFinding | None:
    for place, part in list_parts(request):
        for holder, name, spelled in (
            ("functionCall", "args", "function_call.args"),
            ("functionResponse", "response", "function_response.response"),
        ):
            value = as_mapping(member(part, holder)).get(name)
            if value is not None and not isinstance(value, dict):
                return {"at": f"{place}.{spelled}", "value": f'"{value}"'}
    return None


def _check_name_empty(request: RawRequest) -> RuleFinding | None:
    for place, part in list_parts(request):
        for holder, spelled in (("functionCall", "function_call"), ("functionResponse", "function_response")):
            value = member(part, holder)
            if isinstance(value, dict) and not value.get("name"):
                return {"at": f"{place}.{spelled}"}
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
    spoke = [index for index, content in sent if _is_user_content(content)]
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


def _is_user_content(content: JsonObject) -> bool:
    own = content.get("role") != "model"
    return own and any(member(part, "functionResponse") is None for part in parts(content))


CONTENT_RULES = (
    rule(
        "contents-some",
        _check_contents_some,
        "* GenerateContentRequest.contents: contents is not specified\n",
        evidence="S",
    ),
    rule(
        "parts-some",
        _check_parts_some,
        "* GenerateContentRequest.contents[{index}].parts: contents.parts must not be empty.\n",
        evidence="S",
    ),
    rule(
        "part-member",
        _check_part_member,
        "Invalid JSON payload received. Unknown name \"{name}\" at '{at}': Cannot find field.",
        evidence="S",
    ),
    rule(
        "part-data",
        _check_part_data,
        "* GenerateContentRequest.{at}.data: required oneof field 'data' must have one initialized field\n",
        evidence="S",
    ),
    rule("role", _check_role, "Please use a valid role: user, model.", evidence="S"),
    rule(
        "role-function",
        _check_role_function,
        "Role '{role}' is not supported. Please use a valid role: SYSTEM, SYSTEM_1, USER, ASSISTANT,"
        " DEVELOPER, CONTEXT, USER_CONTEXT, MODEL, USER.",
        evidence="S",
        models="that think at levels",
    ),
    rule("bytes", _check_bytes, _NO_BASE64, evidence="S"),
    rule("struct", _check_struct, f"Invalid value at '{{at}}' ({_STRUCT}), {{value}}", evidence="F"),
    rule(
        "name-empty",
        _check_name_empty,
        "* GenerateContentRequest.{at}.name: Name cannot be empty.\n",
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


def _check_image_data(request: RawRequest) -> RuleFinding | None:
    """Accept an image labelled as another image type, but no other file."""
    for _, part in list_parts(request):
        blob = as_mapping(member(part, "inlineData"))
        labelled = str(member(blob, "mimeType")).startswith("image/")
        shown = recognize_data(member(blob, "data"))
        if labelled and shown and not shown.startswith("image/"):
            return {}
    return None


MEDIA_RULES = (
    rule(
        "image-data",
        _check_image_data,
        "Unable to process input image. Please retry or report in"
        " https://developers.generativeai.google/guide/troubleshooting",
        evidence="S",
    ),
)
