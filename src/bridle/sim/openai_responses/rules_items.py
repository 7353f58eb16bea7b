"""Rules about single input items of the Responses API."""

from collections.abc import Iterator

from bridle.sim.openai.error_style import FIELD_CHECKS, refuse, rule
from bridle.sim.openai.rules_media import media_rules
from bridle.sim.rules.engine import RawRequest, RuleFinding
from bridle.sim.rules.field_rules import FieldRow, join_quoted
from bridle.sim.rules.raw_request import JsonObject, as_list, as_mapping

from .request import items

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


def _find_unknown_part(item: JsonObject) -> RuleFinding | None:
    types = (as_mapping(part).get("type") for part in as_list(item.get("content")) if is_message(item))
    return next(({"type": type_} for type_ in types if isinstance(type_, str) and type_ not in PARTS), None)


def _find_unspoken_part(item: JsonObject) -> RuleFinding | None:
    types = (as_mapping(part).get("type") for part in as_list(item.get("content")))
    unspoken = (type_ for type_ in types if type_ in ("input_text", "input_image", "input_file"))
    return next(({"type": type_} for type_ in unspoken if item.get("role") == "assistant"), None)


NAMED = ("file_search_call", "web_search_call", "computer_call", "image_generation_call",
         "code_interpreter_call", "local_shell_call", "local_shell_call_output", "mcp_list_tools", "mcp_call",
         "mcp_approval_request", "program", "program_output")  # fmt: skip
"""Items that need an id according to the published types; recordings show calls, messages and reasoning
without one."""

ITEM_RULES = (
    FIELD_CHECKS.of_type("input[].id", "string|null", FieldRow(id="item-id-type", evidence="F")),
    FIELD_CHECKS.one_of(
        "input[].role", ROLES, FieldRow(param="{inside}", id="role", only=is_message, evidence="S")
    ),
    FIELD_CHECKS.of_type(
        "input[].content",
        "string|array",
        FieldRow(id="content-type", only=is_message, evidence="S"),
        expected="one of an array of objects or string",
    ),
    FIELD_CHECKS.required("input[].content[].type", FieldRow(id="part-type-required", evidence="S")),
    refuse(
        "part-type",
        "input[]",
        _find_unknown_part,
        f"Invalid value: '{{type}}'. Supported values are: {join_quoted(PARTS)}.",
        evidence="S",
        code="invalid_value",
    ),
    refuse(
        "part-spoken",
        "input[]",
        _find_unspoken_part,
        "Invalid value: '{type}'. Supported values are: 'output_text' and 'refusal'.",
        evidence="S",
        code="invalid_value",
    ),
    FIELD_CHECKS.only_fields(
        "input[]", MESSAGE, FieldRow(id="message-fields", only=is_message, evidence="S")
    ),
    FIELD_CHECKS.required(
        "input[].id",
        FieldRow(id="item-id-required", only=lambda item: item.get("type") in NAMED, evidence="S"),
    ),
    FIELD_CHECKS.required(
        "input[].call_id",
        FieldRow(id="call-id-required", only=lambda item: is_call(item) or is_output(item), evidence="S"),
    ),
    FIELD_CHECKS.required("input[].name", FieldRow(id="call-name-required", only=is_call, evidence="F")),
    FIELD_CHECKS.required("input[].arguments", FieldRow(id="arguments-required", only=is_call, evidence="F")),
    FIELD_CHECKS.of_type(
        "input[].arguments", "string|null", FieldRow(id="arguments-type", only=is_call, evidence="F")
    ),
    FIELD_CHECKS.required("input[].output", FieldRow(id="output-required", only=is_output, evidence="S")),
    FIELD_CHECKS.of_type(
        "input[].output", "string|array|null", FieldRow(id="output-type", only=is_output, evidence="S")
    ),
    FIELD_CHECKS.one_of(
        "input[].output[].type",
        ("input_text", "input_image", "input_file"),
        FieldRow(id="output-part-type", evidence="S"),
    ),
    FIELD_CHECKS.max_length("input[].call_id", 64, FieldRow(id="call-id-length", evidence="S")),
    FIELD_CHECKS.max_length("input[].id", 64, FieldRow(id="item-id-length", evidence="S")),
)


_NO_SOUND = "Invalid '{at}'. The model does not support audio input."


def _list_pieces(request: RawRequest) -> Iterator[tuple[str, JsonObject]]:
    for index, item in enumerate(items(request)):
        for key in ("content", "output"):
            for inner, piece in enumerate(as_list(item.get(key))):
                yield f"input[{index}].{key}[{inner}]", as_mapping(piece)


def _list_images(request: RawRequest) -> Iterator[tuple[str, str]]:
    for place, piece in _list_pieces(request):
        url = piece.get("image_url")
        if isinstance(url, str):
            yield f"{place}.image_url", url


def _check_audio_model(request: RawRequest) -> RuleFinding | None:
    if request.abilities is None or request.abilities.audio:
        return None
    heard = (place for place, piece in _list_pieces(request) if piece.get("type") == "input_audio")
    return next(({"at": place} for place in heard), None)


MEDIA_RULES = (
    rule(
        "audio-model",
        _check_audio_model,
        _NO_SOUND,
        param="{at}",
        code="invalid_value",
        evidence="K",
        models="that take no audio",
    ),
    *media_rules(
        _list_images,
        "Invalid '{at}'.",
    ),
)
