"""Fields against their definitions: lengths, letters, ranges, and values out of a list.

Each rule tells every fault of its kind at once, as the service does.
"""

import re
from collections.abc import Iterator

from ._rules_bedrock_converse_shape import (
    CONSTRAINED,
    Fault,
    asked,
    assistant,
    blocks,
    call,
    constrained,
    held,
    inference,
    messages,
    offering,
    result,
    rule,
    specs,
    text,
    tool,
    user,
)
from ._rules_reading import (
    Block,
    field,
    listed,
    mapping,
)
from .rules import Asked

NAME_LENGTH_MAX = 64
NAME = re.compile(r"[a-zA-Z0-9_-]+")
ID = re.compile(r"[a-zA-Z0-9_.:-]+")
ROLES = ("user", "assistant", "system")
IMAGE_FORMATS = ("png", "jpeg", "gif", "webp")
DOCUMENT_FORMATS = ("pdf", "csv", "doc", "docx", "xls", "xlsx", "html", "txt", "md")
_LONG = f"have length less than or equal to {NAME_LENGTH_MAX}"
_SHORT = "have length greater than or equal to 1"


def _lettered(place: str, value: object, pattern: re.Pattern[str], *, shown: bool) -> Iterator[Fault]:
    word = value if isinstance(value, str) else ""
    told = word if shown else None
    if len(word) > NAME_LENGTH_MAX:
        yield place, told, _LONG
    if not pattern.fullmatch(word):
        yield place, told, f"satisfy regular expression pattern: {pattern.pattern}"
    if not word:
        yield place, told, _SHORT


def _members(request: Asked) -> Iterator[tuple[str, Block]]:
    """Every block with its place as the definitions count it."""
    for index, message in enumerate(messages(request)):
        for inner, block in enumerate(blocks(message)):
            yield f"messages.{index + 1}.member.content.{inner + 1}.member", block


def _roles(request: Asked) -> Iterator[Fault]:
    for index, message in enumerate(messages(request)):
        role = message.get("role")
        if role not in ROLES:
            yield f"messages.{index + 1}.member.role", role, f"satisfy enum value set: [{', '.join(ROLES)}]"


def _calls(request: Asked) -> Iterator[Fault]:
    for place, block in _members(request):
        if isinstance(block.get("toolUse"), dict):
            used = mapping(block["toolUse"])
            yield from _lettered(f"{place}.toolUse.name", used.get("name"), NAME, shown=False)
            yield from _lettered(f"{place}.toolUse.toolUseId", used.get("toolUseId"), ID, shown=False)


def _results(request: Asked) -> Iterator[Fault]:
    for place, block in _members(request):
        if isinstance(block.get("toolResult"), dict):
            id_ = mapping(block["toolResult"]).get("toolUseId")
            yield from _lettered(f"{place}.toolResult.toolUseId", id_, ID, shown=False)


def _names(request: Asked) -> Iterator[Fault]:
    for index, spec in specs(request):
        place = f"toolConfig.tools.{index + 1}.member.toolSpec.name"
        yield from _lettered(place, spec.get("name"), NAME, shown=True)


def _descriptions(request: Asked) -> Iterator[Fault]:
    for index, spec in specs(request):
        if spec.get("description") == "":
            yield f"toolConfig.tools.{index + 1}.member.toolSpec.description", "", _SHORT


def _no_tools(request: Asked) -> Iterator[Fault]:
    config = field(request, "toolConfig")
    if isinstance(config, dict) and not listed(config.get("tools")):
        yield "toolConfig.tools", None, _SHORT


def _system(request: Asked) -> Iterator[Fault]:
    for index, block in enumerate(listed(field(request, "system"))):
        if mapping(block).get("text") == "":
            yield f"system.{index + 1}.member.text", None, _SHORT


def _formats(request: Asked) -> Iterator[Fault]:
    kinds = {"image": IMAGE_FORMATS, "document": DOCUMENT_FORMATS}
    for place, block in _members(request):
        for kind, formats in kinds.items():
            wanted = mapping(block.get(kind)).get("format")
            if wanted is not None and wanted not in formats:
                yield f"{place}.{kind}.format", wanted, f"satisfy enum value set: [{', '.join(formats)}]"


STOPS_MAX = 2_500


def _numbers(request: Asked) -> Iterator[Fault]:
    stops = listed(inference(request, "stopSequences"))
    if len(stops) > STOPS_MAX:
        yield (
            "inferenceConfig.stopSequences",
            None,
            f"have length less than or equal to {STOPS_MAX}",
        )
    wanted = inference(request, "maxTokens")
    if isinstance(wanted, int) and wanted < 1:
        yield "inferenceConfig.maxTokens", wanted, "have value greater than or equal to 1"
    for name in ("temperature", "topP"):
        number = inference(request, name)
        if isinstance(number, int | float) and number > 1:
            yield f"inferenceConfig.{name}", number, "have value less than or equal to 1"
        elif isinstance(number, int | float) and number < 0:
            yield f"inferenceConfig.{name}", number, "have value greater than or equal to 0"


def _statuses(request: Asked) -> Iterator[Fault]:
    for index, message in enumerate(messages(request)):
        for inner, item in held(message, "toolResult"):
            if item.get("status") not in (None, "success", "error"):
                place = f"messages.{index + 1}.member.content.{inner + 1}.member.toolResult.status"
                yield place, item.get("status"), "satisfy enum value set: [success, error]"


_LONGEST_ID = "a.b:c-d_" + "x" * 56
_TALK = (user("Look"), assistant(call()), user(result()))


def _one(place: str, must: str, value: str | None = None) -> str:
    shown = "" if value is None else f"'{value}' "
    fault = f"Value {shown}at '{place}' failed to satisfy constraint: Member must {must}"
    return "1 validation error detected: " + fault


def _told_id(place: str) -> str:
    """What is said of an id that is not there."""
    fault = f"Value at '{place}' failed to satisfy constraint: Member must"
    return f"{fault} satisfy regular expression pattern: {ID.pattern}; {fault} {_SHORT}"


FIELD_RULES = (
    rule(
        "role",
        lambda request: constrained(_roles(request)),
        CONSTRAINED,
        evidence="F",
        passes=asked(messages=[user("Hello"), assistant("Hello"), user("Bye")]),
        offends=asked(messages=[{"role": "model", "content": [text("Hello")]}]),
        says=_one("messages.1.member.role", "satisfy enum value set: [user, assistant, system]", "model"),
    ),
    rule(
        "call-names",
        lambda request: constrained(_calls(request)),
        CONSTRAINED,
        evidence="S",
        passes=asked(
            messages=[
                user("Look"),
                assistant(call("a.b:c-d_" + "x" * 56)),
                user(result("a.b:c-d_" + "x" * 56)),
            ],
            **offering(),
        ),
        offends=asked(messages=[user("Look"), assistant(call(name="look.up")), user(result())], **offering()),
        says=_one(
            "messages.2.member.content.1.member.toolUse.name",
            "satisfy regular expression pattern: [a-zA-Z0-9_-]+",
        ),
        also=(
            (
                asked(messages=[user("Look"), assistant({"toolUse": {"toolUseId": 7, "name": "look"}})]),
                "2 validation errors detected: "
                + _told_id("messages.2.member.content.1.member.toolUse.toolUseId"),
            ),
        ),
    ),
    rule(
        "result-id",
        lambda request: constrained(_results(request)),
        CONSTRAINED,
        evidence="S",
        passes=asked(messages=_TALK, **offering()),
        offends=asked(messages=[user("Look"), assistant(call()), user(result(""))], **offering()),
        says="2 validation errors detected: "
        + _told_id("messages.3.member.content.1.member.toolResult.toolUseId"),
    ),
    rule(
        "result-status",
        lambda request: constrained(_statuses(request)),
        CONSTRAINED,
        evidence="F",
        passes=asked(messages=[*_TALK[:2], user(result(status="error"))], **offering()),
        offends=asked(messages=[*_TALK[:2], user(result(status="failed"))], **offering()),
        says=_one(
            "messages.3.member.content.1.member.toolResult.status",
            "satisfy enum value set: [success, error]",
            "failed",
        ),
    ),
    rule(
        "tool-name",
        lambda request: constrained(_names(request)),
        CONSTRAINED,
        evidence="S",
        passes=asked(**offering(tool("look-up_2" + "x" * 55))),
        offends=asked(**offering(tool(), tool("x" * 65))),
        says=_one("toolConfig.tools.2.member.toolSpec.name", _LONG, "x" * 65),
    ),
    rule(
        "tool-description",
        lambda request: constrained(_descriptions(request)),
        CONSTRAINED,
        evidence="S",
        passes=asked(**offering(tool(description="."))),
        offends=asked(**offering(tool(description=""))),
        says=_one("toolConfig.tools.1.member.toolSpec.description", _SHORT, ""),
    ),
    rule(
        "tools-some",
        lambda request: constrained(_no_tools(request)),
        CONSTRAINED,
        evidence="S",
        passes=asked(**offering()),
        offends=asked(toolConfig={"tools": []}),
        says=_one("toolConfig.tools", _SHORT),
    ),
    rule(
        "system-empty",
        lambda request: constrained(_system(request)),
        CONSTRAINED,
        evidence="F",
        passes=asked(system=[text("Be brief.")]),
        offends=asked(system=[text("Be brief."), text("")]),
        says=_one("system.2.member.text", _SHORT),
    ),
    rule(
        "media-format",
        lambda request: constrained(_formats(request)),
        CONSTRAINED,
        evidence="F",
        passes=asked(messages=[user({"image": {"format": "webp", "source": {"bytes": "AAAA"}}})]),
        offends=asked(messages=[user({"image": {"format": "bmp", "source": {"bytes": "AAAA"}}})]),
        says=_one(
            "messages.1.member.content.1.member.image.format",
            "satisfy enum value set: [png, jpeg, gif, webp]",
            "bmp",
        ),
    ),
    rule(
        "numbers",
        lambda request: constrained(_numbers(request)),
        CONSTRAINED,
        evidence="F",
        passes=asked(inferenceConfig={"maxTokens": 1}),
        offends=asked(inferenceConfig={"maxTokens": 0}),
        says=_one("inferenceConfig.maxTokens", "have value greater than or equal to 1", "0"),
        also=(
            (asked(inferenceConfig={"temperature": 1, "topP": 0}), ""),
            (asked(inferenceConfig={"stopSequences": ["x"] * STOPS_MAX}), ""),
            (
                asked(inferenceConfig={"stopSequences": ["x"] * (STOPS_MAX + 1)}),
                _one("inferenceConfig.stopSequences", "have length less than or equal to 2500"),
            ),
            (
                asked(inferenceConfig={"temperature": 1.1}),
                _one("inferenceConfig.temperature", "have value less than or equal to 1", "1.1"),
            ),
            (
                asked(inferenceConfig={"topP": -0.1}),
                _one("inferenceConfig.topP", "have value greater than or equal to 0", "-0.1"),
            ),
            (
                asked(inferenceConfig={"temperature": 2}),
                _one("inferenceConfig.temperature", "have value less than or equal to 1", "2"),
            ),
        ),
    ),
)
