"""Input of the Responses wire: each item by itself."""

from collections.abc import Iterator

from bridle.sim.openai.error_style import rule
from bridle.sim.rules.engine import RawRequest, RuleFinding
from bridle.sim.rules.field_rules import FieldRow, ObjectFilter, join_quoted
from bridle.sim.rules.raw_request import JsonObject, as_list, as_mapping

from .request import FIELD_CHECKS, call, example, items, output, reasoning_item, text, user

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


def is_message(item: JsonObject) -> bool:
    return item.get("type", "message") == "message"


def is_call(item: JsonObject) -> bool:
    return item.get("type") == "function_call"


def is_output(item: JsonObject) -> bool:
    return item.get("type") == "function_call_output"


def _is_assistant(item: JsonObject) -> bool:
    return item.get("role") == "assistant"


def _check_part_type(request: RawRequest) -> RuleFinding | None:
    for part in _list_parts(request, is_message):
        type_ = part.get("type")
        if isinstance(type_, str) and type_ not in PARTS:
            return {"type": type_}
    return None


def _check_part_spoken(request: RawRequest) -> RuleFinding | None:
    for part in _list_parts(request, _is_assistant):
        if part.get("type") in ("input_text", "input_image", "input_file"):
            return {"type": part.get("type")}
    return None


def _list_parts(request: RawRequest, which: ObjectFilter) -> Iterator[JsonObject]:
    for item in items(request):
        if which(item):
            yield from (as_mapping(part) for part in as_list(item.get("content")))


_LOOKED = [user("Look"), call(), output()]
NAMED = ("file_search_call", "web_search_call", "computer_call", "image_generation_call",
         "code_interpreter_call", "local_shell_call", "local_shell_call_output", "mcp_list_tools", "mcp_call",
         "mcp_approval_request", "program", "program_output")  # fmt: skip
"""Items whose id the published types require; calls, messages and reasoning are taken without (recorded)."""
_SEARCHED: JsonObject = {"type": "web_search_call", "id": "ws_1", "status": "completed"}

ITEM_RULES = (
    FIELD_CHECKS.of_type(
        "input[].id",
        "string|null",
        example(input=[user("Look"), call(id="fc_1"), output()]),
        example(input=[user("Look"), call(id=[{}]), output()]),
        FieldRow(
            id="item-id-type",
            evidence="F",
            says="Invalid type for 'input[1].id': expected a string, but got an array instead.",
            also=(
                (
                    example(input=[user("Look"), call(id=7), output()]),
                    "Invalid type for 'input[1].id': expected a string, but got an integer instead.",
                ),
                (example(input=[user("Look"), call(id=None), output()]), ""),
            ),
        ),
    ),
    FIELD_CHECKS.one_of(
        "input[].role",
        ROLES,
        example(input=[{"role": "developer", "content": "Be brief."}, user("Hello")]),
        example(input=[user("Hello"), {"role": "tool", "content": "seen"}]),
        FieldRow(
            param="{inside}",
            id="role",
            only=is_message,
            evidence="S",
            says="Invalid value: 'tool'. Supported values are: 'assistant', 'system', 'developer', and"
            " 'user'.",
            also=(
                (example(input=[{"content": "Hello"}]), ""),
                (example(input=[{"type": "additional_tools", "role": "platform", "tools": []}]), ""),
            ),
        ),
    ),
    FIELD_CHECKS.of_type(
        "input[].content",
        "string|array",
        example(input=[user("Hello")]),
        example(input=[user("Hello"), {"role": "assistant", "content": None}]),
        FieldRow(
            id="content-type",
            only=is_message,
            evidence="S",
            says="Invalid type for 'input[1].content': expected one of an array of objects or string,"
            " but got null instead.",
            also=(
                (example(input=[{"role": "user"}]), ""),
                (example(input=[{**reasoning_item(), "content": None}, call(), output()]), ""),
            ),
        ),
        expected="one of an array of objects or string",
    ),
    FIELD_CHECKS.required(
        "input[].content[].type",
        example(input=[user(text())]),
        FieldRow(
            id="part-type-required",
            evidence="S",
            says="Missing required parameter: 'input[0].content[1].type'.",
        ),
        refuses=example(input=[user(text(), {"text": "Hello"})]),
    ),
    rule(
        "part-type",
        _check_part_type,
        f"Invalid value: '{{type}}'. Supported values are: {join_quoted(PARTS)}.",
        evidence="S",
        passes=example(
            input=[user(text(), {"type": "input_image", "image_url": "data:image/png;base64,AA=="})]
        ),
        offends=example(input=[user(text(type_="text"))]),
        says="Invalid value: 'text'. Supported values are: 'input_text', 'input_image', 'input_audio',"
        " 'output_text', 'refusal', 'input_file', 'computer_screenshot', 'summary_text',"
        " and 'encrypted_content'.",
        code="invalid_value",
        also=(
            (
                example(
                    input=[{**reasoning_item(), "content": [text(type_="reasoning_text")]}, call(), output()]
                ),
                "",
            ),
            (example(input=[user({"text": "Hello"})]), ""),
        ),
    ),
    rule(
        "part-spoken",
        _check_part_spoken,
        "Invalid value: '{type}'. Supported values are: 'output_text' and 'refusal'.",
        evidence="S",
        passes=example(
            input=[user(text()), {"role": "assistant", "content": [text(type_="output_text")]}, user("Bye")]
        ),
        offends=example(input=[user(text()), {"role": "assistant", "content": [text()]}, user("Bye")]),
        says="Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'.",
        code="invalid_value",
    ),
    FIELD_CHECKS.only_fields(
        "input[]",
        MESSAGE,
        example(
            input=[
                user("Hello"),
                {"role": "assistant", "content": "Hm.", "phase": "commentary"},
                user("Bye"),
            ]
        ),
        example(input=[user("Hello"), {"role": "assistant", "content": "", "tool_calls": []}]),
        FieldRow(
            id="message-fields",
            only=is_message,
            evidence="S",
            says="Unknown parameter: 'input[1].tool_calls'.",
            also=((example(input=_LOOKED), ""),),
        ),
    ),
    FIELD_CHECKS.required(
        "input[].id",
        example(input=[_SEARCHED, user("Look")]),
        FieldRow(
            id="item-id-required",
            only=lambda item: item.get("type") in NAMED,
            evidence="S",
            says="Missing required parameter: 'input[0].id'.",
            also=((example(input=[user("Look"), call(), output()]), ""),),
        ),
        refuses=example(
            input=[{name: value for name, value in _SEARCHED.items() if name != "id"}, user("Look")]
        ),
    ),
    FIELD_CHECKS.required(
        "input[].call_id",
        example(input=_LOOKED),
        FieldRow(
            id="call-id-required",
            only=lambda item: is_call(item) or is_output(item),
            evidence="S",
            says="Missing required parameter: 'input[2].call_id'.",
            also=(
                (
                    example(input=[{**call(), "call_id": None}]),
                    "Missing required parameter: 'input[0].call_id'.",
                ),
            ),
        ),
        refuses=example(input=[user("Look"), call(), {"type": "function_call_output", "output": "seen"}]),
    ),
    FIELD_CHECKS.required(
        "input[].name",
        example(input=_LOOKED),
        FieldRow(
            id="call-name-required",
            only=is_call,
            evidence="F",
            says="Missing required parameter: 'input[1].name'.",
        ),
        refuses=example(
            input=[
                user("Look"),
                call(name=None),
                output(),
            ]
        ),
    ),
    FIELD_CHECKS.required(
        "input[].arguments",
        example(input=_LOOKED),
        FieldRow(
            id="arguments-required",
            only=is_call,
            evidence="F",
            says="Missing required parameter: 'input[1].arguments'.",
        ),
        refuses=example(input=[user("Look"), call(arguments=None), output()]),
    ),
    FIELD_CHECKS.of_type(
        "input[].arguments",
        "string|null",
        example(input=_LOOKED),
        example(input=[user("Look"), call(arguments={"a": 1}), output()]),
        FieldRow(
            id="arguments-type",
            only=is_call,
            evidence="F",
            says="Invalid type for 'input[1].arguments': expected a string, but got an object instead.",
        ),
    ),
    FIELD_CHECKS.required(
        "input[].output",
        example(input=_LOOKED),
        FieldRow(
            id="output-required",
            only=is_output,
            evidence="S",
            says="Missing required parameter: 'input[2].output'.",
        ),
        refuses=example(input=[user("Look"), call(), {"type": "function_call_output", "call_id": "call_1"}]),
    ),
    FIELD_CHECKS.of_type(
        "input[].output",
        "string|array|null",
        example(input=[user("Look"), call(), output(output=[text("seen")])]),
        example(input=[user("Look"), call(), output(output={"seen": True})]),
        FieldRow(
            id="output-type",
            only=is_output,
            evidence="S",
            says="Invalid type for 'input[2].output': expected one of a string or array of objects,"
            " but got an object instead.",
        ),
    ),
    FIELD_CHECKS.one_of(
        "input[].output[].type",
        ("input_text", "input_image", "input_file"),
        example(input=[user("Look"), call(), output(output=[text("seen")])]),
        example(input=[user("Look"), call(), output(output=[text("seen", "output_text")])]),
        FieldRow(
            id="output-part-type",
            evidence="S",
            says="Invalid value: 'output_text'. Supported values are: 'input_text', 'input_image',"
            " and 'input_file'.",
        ),
    ),
    FIELD_CHECKS.max_length(
        "input[].call_id",
        64,
        example(input=[user("Look"), call("c" * 64), output("c" * 64)]),
        example(input=[user("Look"), call("c" * 65), output("c" * 65)]),
        FieldRow(
            id="call-id-length",
            evidence="S",
            says="Invalid 'input[1].call_id': string too long. Expected a string with maximum length 64,"
            " but got a string with length 65 instead.",
        ),
    ),
    FIELD_CHECKS.max_length(
        "input[].id",
        64,
        example(input=[user("Look"), call(id="fc_" + "c" * 61), output()]),
        example(input=[user("Look"), call(id="fc_" + "c" * 62), output()]),
        FieldRow(
            id="item-id-length",
            evidence="S",
            says="Invalid 'input[1].id': string too long. Expected a string with maximum length 64,"
            " but got a string with length 65 instead.",
        ),
    ),
)
