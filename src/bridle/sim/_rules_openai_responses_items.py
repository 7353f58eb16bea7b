"""Input of the Responses wire: each item by itself."""

from collections.abc import Iterator

from ._rules_openai_responses_shape import asked, call, items, output, text, thought, user
from ._rules_openai_shape import (
    Block,
    Example,
    Which,
    known,
    listed,
    listing,
    mapping,
    one_of,
    required,
    rule,
    shorter,
    typed,
)
from .rules import Asked, Found

ROLES = ("assistant", "system", "developer", "user")
PARTS = ("input_text", "input_image", "input_audio", "output_text", "refusal", "input_file",
         "computer_screenshot", "summary_text", "encrypted_content")  # fmt: skip
MESSAGE = (
    "type",
    "role",
    "content",
    "id",
    "status",
    "phase",
    "name",
    "recipient",
    "internal_chat_message_metadata_passthrough",
)


def is_message(item: Block) -> bool:
    return item.get("type", "message") == "message"


def is_call(item: Block) -> bool:
    return item.get("type") == "function_call"


def is_output(item: Block) -> bool:
    return item.get("type") == "function_call_output"


def _spoken(item: Block) -> bool:
    return item.get("role") == "assistant"


def _odd_part(request: Asked) -> Found | None:
    for part in _parts(request, is_message):
        type_ = part.get("type")
        if isinstance(type_, str) and type_ not in PARTS:
            return {"type": type_}
    return None


def _wrong_part(request: Asked) -> Found | None:
    for part in _parts(request, _spoken):
        if part.get("type") in ("input_text", "input_image", "input_file"):
            return {"type": part.get("type")}
    return None


def _parts(request: Asked, which: Which) -> Iterator[Block]:
    for item in items(request):
        if which(item):
            yield from (mapping(part) for part in listed(item.get("content")))


_LOOKED = [user("Look"), call(), output()]

ITEM_RULES = (
    one_of(
        "role",
        "input[].role",
        ROLES,
        Example(
            asked(input=[{"role": "developer", "content": "Be brief."}, user("Hello")]),
            asked(input=[user("Hello"), {"role": "tool", "content": "seen"}]),
            "Invalid value: 'tool'. Supported values are: 'assistant', 'system', 'developer', and 'user'.",
            also=(
                (asked(input=[{"content": "Hello"}]), ""),
                (asked(input=[{"type": "additional_tools", "role": "platform", "tools": []}]), ""),
            ),
        ),
        which=is_message,
    ),
    typed(
        "content-type",
        "input[].content",
        ("a string", "an array"),
        "one of an array of objects or string",
        Example(
            asked(input=[user("Hello")]),
            asked(input=[user("Hello"), {"role": "assistant", "content": None}]),
            "Invalid type for 'input[1].content': expected one of an array of objects or string,"
            " but got null instead.",
            also=(
                (asked(input=[{"role": "user"}]), ""),
                (asked(input=[{**thought(), "content": None}, call(), output()]), ""),
            ),
        ),
        which=is_message,
    ),
    required(
        "part-type-required",
        "input[].content[].type",
        Example(
            asked(input=[user(text())]),
            asked(input=[user(text(), {"text": "Hello"})]),
            "Missing required parameter: 'input[0].content[1].type'.",
        ),
    ),
    rule(
        "part-type",
        _odd_part,
        f"Invalid value: '{{type}}'. Supported values are: {listing(PARTS)}.",
        evidence="S",
        passes=asked(
            input=[user(text(), {"type": "input_image", "image_url": "data:image/png;base64,AA=="})]
        ),
        offends=asked(input=[user(text(type_="text"))]),
        says="Invalid value: 'text'. Supported values are: 'input_text', 'input_image', 'input_audio',"
        " 'output_text', 'refusal', 'input_file', 'computer_screenshot', 'summary_text',"
        " and 'encrypted_content'.",
        code="invalid_value",
        also=(
            (asked(input=[{**thought(), "content": [text(type_="reasoning_text")]}, call(), output()]), ""),
            (asked(input=[user({"text": "Hello"})]), ""),
        ),
    ),
    rule(
        "part-spoken",
        _wrong_part,
        "Invalid value: '{type}'. Supported values are: 'output_text' and 'refusal'.",
        evidence="S",
        passes=asked(
            input=[user(text()), {"role": "assistant", "content": [text(type_="output_text")]}, user("Bye")]
        ),
        offends=asked(input=[user(text()), {"role": "assistant", "content": [text()]}, user("Bye")]),
        says="Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'.",
        code="invalid_value",
    ),
    known(
        "message-fields",
        "input[]",
        MESSAGE,
        Example(
            asked(
                input=[
                    user("Hello"),
                    {"role": "assistant", "content": "Hm.", "phase": "commentary"},
                    user("Bye"),
                ]
            ),
            asked(input=[user("Hello"), {"role": "assistant", "content": "", "tool_calls": []}]),
            "Unknown parameter: 'input[1].tool_calls'.",
            also=((asked(input=_LOOKED), ""),),
        ),
        which=is_message,
    ),
    required(
        "call-id-required",
        "input[].call_id",
        Example(
            asked(input=_LOOKED),
            asked(input=[user("Look"), call(), {"type": "function_call_output", "output": "seen"}]),
            "Missing required parameter: 'input[2].call_id'.",
            also=(
                (
                    asked(input=[{**call(), "call_id": None}]),
                    "Missing required parameter: 'input[0].call_id'.",
                ),
            ),
        ),
        which=lambda item: is_call(item) or is_output(item),
    ),
    required(
        "call-name-required",
        "input[].name",
        Example(
            asked(input=_LOOKED),
            asked(
                input=[
                    user("Look"),
                    call(name=None),
                    output(),
                ]
            ),
            "Missing required parameter: 'input[1].name'.",
        ),
        which=is_call,
        evidence="F",
    ),
    required(
        "arguments-required",
        "input[].arguments",
        Example(
            asked(input=_LOOKED),
            asked(input=[user("Look"), call(arguments=None), output()]),
            "Missing required parameter: 'input[1].arguments'.",
        ),
        which=is_call,
        evidence="F",
    ),
    typed(
        "arguments-type",
        "input[].arguments",
        ("a string", "null"),
        "a string",
        Example(
            asked(input=_LOOKED),
            asked(input=[user("Look"), call(arguments={"a": 1}), output()]),
            "Invalid type for 'input[1].arguments': expected a string, but got an object instead.",
        ),
        which=is_call,
        evidence="F",
    ),
    required(
        "output-required",
        "input[].output",
        Example(
            asked(input=_LOOKED),
            asked(input=[user("Look"), call(), {"type": "function_call_output", "call_id": "call_1"}]),
            "Missing required parameter: 'input[2].output'.",
        ),
        which=is_output,
    ),
    typed(
        "output-type",
        "input[].output",
        ("a string", "an array", "null"),
        "one of a string or array of objects",
        Example(
            asked(input=[user("Look"), call(), output(output=[text("seen")])]),
            asked(input=[user("Look"), call(), output(output={"seen": True})]),
            "Invalid type for 'input[2].output': expected one of a string or array of objects,"
            " but got an object instead.",
        ),
        which=is_output,
    ),
    one_of(
        "output-part-type",
        "input[].output[].type",
        ("input_text", "input_image", "input_file"),
        Example(
            asked(input=[user("Look"), call(), output(output=[text("seen")])]),
            asked(input=[user("Look"), call(), output(output=[text("seen", "output_text")])]),
            "Invalid value: 'output_text'. Supported values are: 'input_text', 'input_image',"
            " and 'input_file'.",
        ),
    ),
    shorter(
        "call-id-length",
        "input[].call_id",
        64,
        Example(
            asked(input=[user("Look"), call("c" * 64), output("c" * 64)]),
            asked(input=[user("Look"), call("c" * 65), output("c" * 65)]),
            "Invalid 'input[1].call_id': string too long. Expected a string with maximum length 64,"
            " but got a string with length 65 instead.",
        ),
    ),
    shorter(
        "item-id-length",
        "input[].id",
        64,
        Example(
            asked(input=[user("Look"), call(id="fc_" + "c" * 61), output()]),
            asked(input=[user("Look"), call(id="fc_" + "c" * 62), output()]),
            "Invalid 'input[1].id': string too long. Expected a string with maximum length 64,"
            " but got a string with length 65 instead.",
        ),
    ),
)
