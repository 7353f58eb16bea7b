"""Rules about field definitions: lengths, characters, ranges and allowed values.

Each rule reports every fault of its kind at once, as the service does.
"""

import re
from collections.abc import Iterator

from bridle.sim.rules.engine import RawRequest
from bridle.sim.rules.raw_request import JsonObject, as_list, as_mapping, field

from .request import (
    CONSTRAINT_MESSAGE,
    FieldFault,
    blocks,
    describe_faults,
    inference_setting,
    list_held,
    list_tool_specs,
    messages,
    rule,
)

NAME_LENGTH_MAX = 64
NAME = re.compile(r"[a-zA-Z0-9_-]+")
ID = re.compile(r"[a-zA-Z0-9_.:-]+")
ROLES = ("user", "assistant", "system")
IMAGE_FORMATS = ("png", "jpeg", "gif", "webp")
DOCUMENT_FORMATS = ("pdf", "csv", "doc", "docx", "xls", "xlsx", "html", "txt", "md")
_LONG = f"have length less than or equal to {NAME_LENGTH_MAX}"
_SHORT = "have length greater than or equal to 1"


def _list_name_faults(
    place: str, value: object, pattern: re.Pattern[str], *, shown: bool
) -> Iterator[FieldFault]:
    word = value if isinstance(value, str) else ""
    shown_value = word if shown else None
    if len(word) > NAME_LENGTH_MAX:
        yield place, shown_value, _LONG
    if not pattern.fullmatch(word):
        yield place, shown_value, f"satisfy regular expression pattern: {pattern.pattern}"
    if not word:
        yield place, shown_value, _SHORT


def _list_block_places(request: RawRequest) -> Iterator[tuple[str, JsonObject]]:
    """Yield every block with its path, counted from one."""
    for index, message in enumerate(messages(request)):
        for inner, block in enumerate(blocks(message)):
            yield f"messages.{index + 1}.member.content.{inner + 1}.member", block


def _list_role_faults(request: RawRequest) -> Iterator[FieldFault]:
    for index, message in enumerate(messages(request)):
        role = message.get("role")
        if role not in ROLES:
            yield f"messages.{index + 1}.member.role", role, f"satisfy enum value set: [{', '.join(ROLES)}]"


def _list_call_faults(request: RawRequest) -> Iterator[FieldFault]:
    for place, block in _list_block_places(request):
        if isinstance(block.get("toolUse"), dict):
            used = as_mapping(block["toolUse"])
            yield from _list_name_faults(f"{place}.toolUse.name", used.get("name"), NAME, shown=False)
            yield from _list_name_faults(f"{place}.toolUse.toolUseId", used.get("toolUseId"), ID, shown=False)


def _list_result_faults(request: RawRequest) -> Iterator[FieldFault]:
    for place, block in _list_block_places(request):
        if isinstance(block.get("toolResult"), dict):
            id_ = as_mapping(block["toolResult"]).get("toolUseId")
            yield from _list_name_faults(f"{place}.toolResult.toolUseId", id_, ID, shown=False)


def _list_tool_name_faults(request: RawRequest) -> Iterator[FieldFault]:
    for index, spec in list_tool_specs(request):
        place = f"toolConfig.tools.{index + 1}.member.toolSpec.name"
        yield from _list_name_faults(place, spec.get("name"), NAME, shown=True)


def _list_description_faults(request: RawRequest) -> Iterator[FieldFault]:
    for index, spec in list_tool_specs(request):
        if spec.get("description") == "":
            yield f"toolConfig.tools.{index + 1}.member.toolSpec.description", "", _SHORT


def _list_empty_tool_faults(request: RawRequest) -> Iterator[FieldFault]:
    config = field(request, "toolConfig")
    if isinstance(config, dict) and not as_list(config.get("tools")):
        yield "toolConfig.tools", None, _SHORT


def _list_system_faults(request: RawRequest) -> Iterator[FieldFault]:
    for index, block in enumerate(as_list(field(request, "system"))):
        if as_mapping(block).get("text") == "":
            yield f"system.{index + 1}.member.text", None, _SHORT


def _list_format_faults(request: RawRequest) -> Iterator[FieldFault]:
    kinds = {"image": IMAGE_FORMATS, "document": DOCUMENT_FORMATS}
    for place, block in _list_block_places(request):
        for kind, formats in kinds.items():
            wanted = as_mapping(block.get(kind)).get("format")
            if wanted is not None and wanted not in formats:
                yield f"{place}.{kind}.format", wanted, f"satisfy enum value set: [{', '.join(formats)}]"


STOPS_MAX = 2_500


def _list_number_faults(request: RawRequest) -> Iterator[FieldFault]:
    stops = as_list(inference_setting(request, "stopSequences"))
    if len(stops) > STOPS_MAX:
        yield (
            "inferenceConfig.stopSequences",
            None,
            f"have length less than or equal to {STOPS_MAX}",
        )
    wanted = inference_setting(request, "maxTokens")
    if isinstance(wanted, int) and wanted < 1:
        yield "inferenceConfig.maxTokens", wanted, "have value greater than or equal to 1"
    for name in ("temperature", "topP"):
        number = inference_setting(request, name)
        if isinstance(number, int | float) and number > 1:
            yield f"inferenceConfig.{name}", number, "have value less than or equal to 1"
        elif isinstance(number, int | float) and number < 0:
            yield f"inferenceConfig.{name}", number, "have value greater than or equal to 0"


def _list_status_faults(request: RawRequest) -> Iterator[FieldFault]:
    for index, message in enumerate(messages(request)):
        for inner, item in list_held(message, "toolResult"):
            if item.get("status") not in (None, "success", "error"):
                place = f"messages.{index + 1}.member.content.{inner + 1}.member.toolResult.status"
                yield place, item.get("status"), "satisfy enum value set: [success, error]"


CONSTRAINT_RULES = (
    rule(
        "role", lambda request: describe_faults(_list_role_faults(request)), CONSTRAINT_MESSAGE, evidence="F"
    ),
    rule(
        "call-names",
        lambda request: describe_faults(_list_call_faults(request)),
        CONSTRAINT_MESSAGE,
        evidence="S",
    ),
    rule(
        "result-id",
        lambda request: describe_faults(_list_result_faults(request)),
        CONSTRAINT_MESSAGE,
        evidence="S",
    ),
    rule(
        "result-status",
        lambda request: describe_faults(_list_status_faults(request)),
        CONSTRAINT_MESSAGE,
        evidence="F",
    ),
    rule(
        "tool-name",
        lambda request: describe_faults(_list_tool_name_faults(request)),
        CONSTRAINT_MESSAGE,
        evidence="S",
    ),
    rule(
        "tool-description",
        lambda request: describe_faults(_list_description_faults(request)),
        CONSTRAINT_MESSAGE,
        evidence="S",
    ),
    rule(
        "tools-some",
        lambda request: describe_faults(_list_empty_tool_faults(request)),
        CONSTRAINT_MESSAGE,
        evidence="S",
    ),
    rule(
        "system-empty",
        lambda request: describe_faults(_list_system_faults(request)),
        CONSTRAINT_MESSAGE,
        evidence="F",
    ),
    rule(
        "media-format",
        lambda request: describe_faults(_list_format_faults(request)),
        CONSTRAINT_MESSAGE,
        evidence="F",
    ),
    rule(
        "numbers",
        lambda request: describe_faults(_list_number_faults(request)),
        CONSTRAINT_MESSAGE,
        evidence="F",
    ),
)
