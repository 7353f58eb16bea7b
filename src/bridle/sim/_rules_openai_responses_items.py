"""Input of the Responses wire: each item by itself."""

from collections.abc import Iterator

from ._rules_openai_responses_shape import SHAPES, asked, call, items, output, text, thought, user
from ._rules_openai_shape import (
    rule,
)
from ._rules_reading import (
    Block,
    listed,
    mapping,
)
from ._rules_shapes import (
    Row,
    Which,
    listing,
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
NAMED = ("file_search_call", "web_search_call", "computer_call", "image_generation_call",
         "code_interpreter_call", "local_shell_call", "local_shell_call_output", "mcp_list_tools", "mcp_call",
         "mcp_approval_request", "program", "program_output")  # fmt: skip
"""Items whose id the published types require; calls, messages and reasoning are taken without (recorded)."""
_SEARCHED: Block = {"type": "web_search_call", "id": "ws_1", "status": "completed"}

ITEM_RULES = (
    SHAPES.typed(
        "input[].id",
        "string|null",
        asked(input=[user("Look"), call(id="fc_1"), output()]),
        asked(input=[user("Look"), call(id=[{}]), output()]),
        Row(
            id="item-id-type",
            evidence="F",
            says="Invalid type for 'input[1].id': expected a string, but got an array instead.",
            also=(
                (
                    asked(input=[user("Look"), call(id=7), output()]),
                    "Invalid type for 'input[1].id': expected a string, but got an integer instead.",
                ),
                (asked(input=[user("Look"), call(id=None), output()]), ""),
            ),
        ),
    ),
    SHAPES.one_of(
        "input[].role",
        ROLES,
        asked(input=[{"role": "developer", "content": "Be brief."}, user("Hello")]),
        asked(input=[user("Hello"), {"role": "tool", "content": "seen"}]),
        Row(
            param="{inside}",
            id="role",
            only=is_message,
            evidence="S",
            says="Invalid value: 'tool'. Supported values are: 'assistant', 'system', 'developer', and"
            " 'user'.",
            also=(
                (asked(input=[{"content": "Hello"}]), ""),
                (asked(input=[{"type": "additional_tools", "role": "platform", "tools": []}]), ""),
            ),
        ),
    ),
    SHAPES.typed(
        "input[].content",
        "string|array",
        asked(input=[user("Hello")]),
        asked(input=[user("Hello"), {"role": "assistant", "content": None}]),
        Row(
            id="content-type",
            only=is_message,
            evidence="S",
            says="Invalid type for 'input[1].content': expected one of an array of objects or string,"
            " but got null instead.",
            also=(
                (asked(input=[{"role": "user"}]), ""),
                (asked(input=[{**thought(), "content": None}, call(), output()]), ""),
            ),
        ),
        expected="one of an array of objects or string",
    ),
    SHAPES.required(
        "input[].content[].type",
        asked(input=[user(text())]),
        Row(
            id="part-type-required",
            evidence="S",
            says="Missing required parameter: 'input[0].content[1].type'.",
        ),
        refuses=asked(input=[user(text(), {"text": "Hello"})]),
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
    SHAPES.known(
        "input[]",
        MESSAGE,
        asked(
            input=[
                user("Hello"),
                {"role": "assistant", "content": "Hm.", "phase": "commentary"},
                user("Bye"),
            ]
        ),
        asked(input=[user("Hello"), {"role": "assistant", "content": "", "tool_calls": []}]),
        Row(
            id="message-fields",
            only=is_message,
            evidence="S",
            says="Unknown parameter: 'input[1].tool_calls'.",
            also=((asked(input=_LOOKED), ""),),
        ),
    ),
    SHAPES.required(
        "input[].id",
        asked(input=[_SEARCHED, user("Look")]),
        Row(
            id="item-id-required",
            only=lambda item: item.get("type") in NAMED,
            evidence="S",
            says="Missing required parameter: 'input[0].id'.",
            also=((asked(input=[user("Look"), call(), output()]), ""),),
        ),
        refuses=asked(
            input=[{name: value for name, value in _SEARCHED.items() if name != "id"}, user("Look")]
        ),
    ),
    SHAPES.required(
        "input[].call_id",
        asked(input=_LOOKED),
        Row(
            id="call-id-required",
            only=lambda item: is_call(item) or is_output(item),
            evidence="S",
            says="Missing required parameter: 'input[2].call_id'.",
            also=(
                (
                    asked(input=[{**call(), "call_id": None}]),
                    "Missing required parameter: 'input[0].call_id'.",
                ),
            ),
        ),
        refuses=asked(input=[user("Look"), call(), {"type": "function_call_output", "output": "seen"}]),
    ),
    SHAPES.required(
        "input[].name",
        asked(input=_LOOKED),
        Row(
            id="call-name-required",
            only=is_call,
            evidence="F",
            says="Missing required parameter: 'input[1].name'.",
        ),
        refuses=asked(
            input=[
                user("Look"),
                call(name=None),
                output(),
            ]
        ),
    ),
    SHAPES.required(
        "input[].arguments",
        asked(input=_LOOKED),
        Row(
            id="arguments-required",
            only=is_call,
            evidence="F",
            says="Missing required parameter: 'input[1].arguments'.",
        ),
        refuses=asked(input=[user("Look"), call(arguments=None), output()]),
    ),
    SHAPES.typed(
        "input[].arguments",
        "string|null",
        asked(input=_LOOKED),
        asked(input=[user("Look"), call(arguments={"a": 1}), output()]),
        Row(
            id="arguments-type",
            only=is_call,
            evidence="F",
            says="Invalid type for 'input[1].arguments': expected a string, but got an object instead.",
        ),
    ),
    SHAPES.required(
        "input[].output",
        asked(input=_LOOKED),
        Row(
            id="output-required",
            only=is_output,
            evidence="S",
            says="Missing required parameter: 'input[2].output'.",
        ),
        refuses=asked(input=[user("Look"), call(), {"type": "function_call_output", "call_id": "call_1"}]),
    ),
    SHAPES.typed(
        "input[].output",
        "string|array|null",
        asked(input=[user("Look"), call(), output(output=[text("seen")])]),
        asked(input=[user("Look"), call(), output(output={"seen": True})]),
        Row(
            id="output-type",
            only=is_output,
            evidence="S",
            says="Invalid type for 'input[2].output': expected one of a string or array of objects,"
            " but got an object instead.",
        ),
    ),
    SHAPES.one_of(
        "input[].output[].type",
        ("input_text", "input_image", "input_file"),
        asked(input=[user("Look"), call(), output(output=[text("seen")])]),
        asked(input=[user("Look"), call(), output(output=[text("seen", "output_text")])]),
        Row(
            id="output-part-type",
            evidence="S",
            says="Invalid value: 'output_text'. Supported values are: 'input_text', 'input_image',"
            " and 'input_file'.",
        ),
    ),
    SHAPES.shorter(
        "input[].call_id",
        64,
        asked(input=[user("Look"), call("c" * 64), output("c" * 64)]),
        asked(input=[user("Look"), call("c" * 65), output("c" * 65)]),
        Row(
            id="call-id-length",
            evidence="S",
            says="Invalid 'input[1].call_id': string too long. Expected a string with maximum length 64,"
            " but got a string with length 65 instead.",
        ),
    ),
    SHAPES.shorter(
        "input[].id",
        64,
        asked(input=[user("Look"), call(id="fc_" + "c" * 61), output()]),
        asked(input=[user("Look"), call(id="fc_" + "c" * 62), output()]),
        Row(
            id="item-id-length",
            evidence="S",
            says="Invalid 'input[1].id': string too long. Expected a string with maximum length 64,"
            " but got a string with length 65 instead.",
        ),
    ),
)
