"""Contents: that something is said, by somebody, and that calls are answered.

Neighbours of one side are read as one turn, so calls and their responses may be spread
over several contents.  A call that nobody answers passes where no function is declared:
recorded conversations show it.
"""

import re
from collections.abc import Iterator
from itertools import pairwise

from ._rules_gemini_shape import (
    BUDGETS,
    Turn,
    asked,
    call,
    contents,
    declarations,
    leveled,
    member,
    model,
    parts,
    placed_parts,
    response,
    rule,
    tool,
    turns,
    user,
)
from ._rules_reading import (
    Block,
    mapping,
    to,
)
from .rules import Asked, Found

ROLES = ("user", "model")
OLD_ROLES = ("function", "tool")
DATA = [
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
BESIDE = [
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


def _nothing_asked(request: Asked) -> Found | None:
    return None if contents(request) else {}


def _nothing_said(request: Asked) -> Found | None:
    for index, content in enumerate(contents(request)):
        if not parts(content):
            return {"index": index}
    return None


def _unknown_member(request: Asked) -> Found | None:
    for place, part in placed_parts(request):
        for name in part:
            if not any(member({name: True}, known) for known in (*DATA, *BESIDE)):
                return {"at": place, "name": name}
    return None


def _empty_part(request: Asked) -> Found | None:
    for place, part in placed_parts(request):
        says = any(member(part, name) is not None for name in (*DATA, "thoughtSignature"))
        if not says:
            return {"at": place}
    return None


def _unknown_role(request: Asked) -> Found | None:
    for content in contents(request):
        if content.get("role") not in (None, *ROLES, *OLD_ROLES):
            return {}
    return None


def _old_role(request: Asked) -> Found | None:
    for content in contents(request):
        if leveled(request) and content.get("role") in OLD_ROLES:
            return {"role": content.get("role")}
    return None


def _bytes(request: Asked) -> Iterator[tuple[str, object]]:
    for place, part in placed_parts(request):
        yield f"{place}.inline_data.data", mapping(member(part, "inlineData")).get("data")
        yield f"{place}.thought_signature", member(part, "thoughtSignature")


def _not_base64(request: Asked) -> Found | None:
    for place, data in _bytes(request):
        if isinstance(data, str) and not (_BASE64.fullmatch(data) and len(data.rstrip("=")) % 4 != 1):
            return {"at": place, "data": data}
    return None


def _no_struct(request: Asked) -> Found | None:
    for place, part in placed_parts(request):
        for holder, name, spelled in (
            ("functionCall", "args", "function_call.args"),
            ("functionResponse", "response", "function_response.response"),
        ):
            value = mapping(member(part, holder)).get(name)
            if value is not None and not isinstance(value, dict):
                return {"at": f"{place}.{spelled}", "value": f'"{value}"'}
    return None


def _nameless(request: Asked) -> Found | None:
    for place, part in placed_parts(request):
        for holder, spelled in (("functionCall", "function_call"), ("functionResponse", "function_response")):
            held = member(part, holder)
            if isinstance(held, dict) and not held.get("name"):
                return {"at": f"{place}.{spelled}"}
    return None


def _opening_call(request: Asked) -> Found | None:
    said = turns(request)
    return {} if said and said[0].model and said[0].inside("functionCall") else None


def _paired(request: Asked) -> Iterator[tuple[Turn, Turn]]:
    yield from pairwise(turns(request))


def _orphan(request: Asked) -> Found | None:
    said = turns(request)
    if said and said[0].inside("functionResponse"):
        return {}
    for before, turn in _paired(request):
        if turn.inside("functionResponse") and not before.inside("functionCall"):
            return {}
    return None


def _miscounted(request: Asked) -> Found | None:
    declared = any(True for _ in declarations(request))
    for before, turn in _paired(request):
        called, answered = before.inside("functionCall"), turn.inside("functionResponse")
        if len(called) != len(answered) and (answered or declared):
            return {}
    return None


def _unsigned(request: Asked) -> Found | None:
    """Only since the user last spoke, and only the first call of each turn.

    A turn may be spread over several contents: google-genai sends every chunk of a stream back as one.
    """
    if not leveled(request):
        return None
    said = list(enumerate(contents(request)))
    spoke = [index for index, content in said if _is_spoken(content)]
    called = False
    for index, content in said[max(spoke, default=None) :]:
        if content.get("role") != "model":
            called = False
            continue
        calls = [part for part in parts(content) if member(part, "functionCall") is not None]
        if calls and not called and not member(calls[0], "thoughtSignature"):
            name = mapping(member(calls[0], "functionCall")).get("name")
            return {"name": name, "position": index + 1}
        called = called or bool(calls)
    return None


def _is_spoken(content: Block) -> bool:
    own = content.get("role") != "model"
    return own and any(member(part, "functionResponse") is None for part in parts(content))


_LOOK = {"tools": [tool()]}
_PAIR = (model(call()), user(response()))

CONTENT_RULES = (
    rule(
        "contents-some",
        _nothing_asked,
        "* GenerateContentRequest.contents: contents is not specified\n",
        evidence="S",
        passes=asked(contents=user("Hello")),
        offends=asked(contents=[]),
    ),
    rule(
        "parts-some",
        _nothing_said,
        "* GenerateContentRequest.contents[{index}].parts: contents.parts must not be empty.\n",
        evidence="S",
        passes=asked(contents=[user("Hello"), model(""), user("Bye")]),
        offends=asked(contents=[user("Hello"), model(), user("Bye")]),
        says="* GenerateContentRequest.contents[1].parts: contents.parts must not be empty.\n",
    ),
    rule(
        "part-member",
        _unknown_member,
        "Invalid JSON payload received. Unknown name \"{name}\" at '{at}': Cannot find field.",
        evidence="S",
        passes=asked(contents=[user({"inline_data": {"mime_type": "image/png", "data": "AAAA"}})]),
        offends=asked(contents=[user("Hello", {"text": "Bye", "role": "user"})]),
        says="Invalid JSON payload received. Unknown name \"role\" at 'contents[0].parts[1]':"
        " Cannot find field.",
    ),
    rule(
        "part-data",
        _empty_part,
        "* GenerateContentRequest.{at}.data: required oneof field 'data' must have one initialized field\n",
        evidence="S",
        passes=asked(contents=[user("Hello"), model({"thoughtSignature": "c2ln"}), user("Bye")]),
        offends=asked(contents=[user("Hello"), model({"thought": True}), user("Bye")]),
        says="* GenerateContentRequest.contents[1].parts[0].data: required oneof field 'data' must have one"
        " initialized field\n",
    ),
    rule(
        "role",
        _unknown_role,
        "Please use a valid role: user, model.",
        evidence="S",
        passes=asked(contents=[user("Hello"), model("Hello"), {"parts": [{"text": "Bye"}]}]),
        offends=asked(contents=[user("Hello"), {"role": "assistant", "parts": [{"text": "Hello"}]}]),
    ),
    rule(
        "role-function",
        _old_role,
        "Role '{role}' is not supported. Please use a valid role: SYSTEM, SYSTEM_1, USER, ASSISTANT,"
        " DEVELOPER, CONTEXT, USER_CONTEXT, MODEL, USER.",
        evidence="S",
        models="that think at levels",
        passes=to(
            BUDGETS,
            asked(
                contents=[user("Look"), model(call()), {"role": "function", "parts": [response()]}], **_LOOK
            ),
        ),
        offends=asked(
            contents=[user("Look"), model(call()), {"role": "function", "parts": [response()]}], **_LOOK
        ),
        says="Role 'function' is not supported. Please use a valid role: SYSTEM, SYSTEM_1, USER, ASSISTANT,"
        " DEVELOPER, CONTEXT, USER_CONTEXT, MODEL, USER.",
    ),
    rule(
        "bytes",
        _not_base64,
        _NO_BASE64,
        evidence="S",
        passes=asked(contents=[user({"inlineData": {"mimeType": "image/png", "data": "_-+/AA=="}})]),
        offends=asked(contents=[user({"inlineData": {"mimeType": "image/png", "data": "AAAAA"}})]),
        says="Invalid value at 'contents[0].parts[0].inline_data.data' (TYPE_BYTES), Base64 decoding failed"
        ' for "AAAAA"',
        also=(
            (
                asked(contents=[user({"inlineData": {"data": "A A="}})]),
                _NO_BASE64.format(at="contents[0].parts[0].inline_data.data", data="A A="),
            ),
        ),
    ),
    rule(
        "struct",
        _no_struct,
        f"Invalid value at '{{at}}' ({_STRUCT}), {{value}}",
        evidence="F",
        passes=asked(contents=[user("Look"), *_PAIR], **_LOOK),
        offends=asked(contents=[user("Look"), model(call()), user(response(response="seen"))], **_LOOK),
        says=f"Invalid value at 'contents[2].parts[0].function_response.response' ({_STRUCT}), \"seen\"",
    ),
    rule(
        "name-empty",
        _nameless,
        "* GenerateContentRequest.{at}.name: Name cannot be empty.\n",
        evidence="F",
        passes=asked(contents=[user("Look"), *_PAIR], **_LOOK),
        offends=asked(contents=[user("Look"), model(call()), user(response(name=""))], **_LOOK),
        says="* GenerateContentRequest.contents[2].parts[0].function_response.name: Name cannot be empty.\n",
    ),
    rule(
        "call-first",
        _opening_call,
        "Please ensure that function call turn comes immediately after a user turn or after a function"
        " response turn.",
        evidence="S",
        passes=asked(contents=[user("Look"), model("I look."), model(call()), user(response())], **_LOOK),
        offends=asked(contents=[model(call()), user(response())], **_LOOK),
        also=(
            (asked(contents=[user(call()), model("So.")]), ""),
            (asked(contents=[model("So."), user("Bye")]), ""),
        ),
    ),
    rule(
        "response-orphan",
        _orphan,
        _ORPHAN,
        evidence="S",
        passes=asked(contents=[user("Look"), *_PAIR], **_LOOK),
        offends=asked(contents=[user("Look"), model("No."), user(response())], **_LOOK),
        also=((asked(contents=[user(response())]), _ORPHAN),),
    ),
    rule(
        "response-count",
        _miscounted,
        _COUNT,
        evidence="S",
        passes=asked(
            contents=[user("Look"), model(call(), call(signature="")), user(response()), user(response())],
            **_LOOK,
        ),
        offends=asked(
            contents=[user("Look"), model(call(), call(signature="")), user(response(), "And?")], **_LOOK
        ),
        also=(
            (asked(contents=[user("Look"), model("So."), user("Bye")], **_LOOK), ""),
            (asked(contents=[user("Look"), model(call()), user("Bye")]), ""),
            (asked(contents=[user("Look"), model(call(), call()), user(response())]), _COUNT),
            (asked(contents=[user("Look"), model(call()), user("Bye")], **_LOOK), _COUNT),
        ),
    ),
    rule(
        "call-signed",
        _unsigned,
        _UNSIGNED,
        evidence="S",
        models="that think at levels",
        passes=asked(
            contents=[user("Look"), model(call(signature="")), user(response()), model("So."), user("Bye")],
            **_LOOK,
        ),
        offends=asked(contents=[user("Look"), model("I", call(signature="")), user(response())], **_LOOK),
        says=_UNSIGNED.format(name="look", position=2),
        also=(
            (
                asked(
                    contents=[
                        user("Look"),
                        model(call(signature="")),
                        user(response()),
                        model(call()),
                        user(response()),
                    ]
                ),
                _UNSIGNED.format(name="look", position=2),
            ),
            (asked(contents=[user(call(signature=""))]), ""),
            (
                asked(
                    contents=[
                        user("Look"),
                        model("I look."),
                        model(call()),
                        model(call(signature="")),
                        model(""),
                        model(call(signature="")),
                        user(response(), response()),
                    ],
                    **_LOOK,
                ),
                "",
            ),
            (
                asked(
                    contents=[model(call(signature=""), call("search")), user(response(), response("search"))]
                ),
                _UNSIGNED.format(name="look", position=1),
            ),
            (
                asked(contents=[user("Look"), model("I look.", call(signature="")), user(response())]),
                _UNSIGNED.format(name="look", position=2),
            ),
        ),
    ),
)
