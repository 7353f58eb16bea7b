"""Rules of servers that adopted the Chat Completions wire, with their own messages.

They differ most about reasoning: some require it back, others refuse it.
"""

import re

from msgspec.structs import replace

from bridle.sim.openai.error_style import refuse, rule
from bridle.sim.rules.engine import RawRequest, RuleFinding
from bridle.sim.rules.raw_request import JsonObject, as_list, as_mapping, field, find_unknown_model, messages
from bridle.values.text import is_too_deep, parse_json

from .request import REASONING_FIELDS, calls
from .rules_messages import check_result_missing, check_result_orphan

CALL_ID = re.compile("[a-zA-Z0-9]{9}")


def _check_echo(request: RawRequest) -> RuleFinding | None:
    """Require the reasoning that led to a call, for models that reason."""
    able = request.abilities
    thinks = able is not None and (bool(able.thinking) or not able.sampling)
    if not thinks or as_mapping(field(request, "thinking")).get("type") == "disabled":
        return None
    found = any(calls(message) and not _has_reasoning(message) for message in messages(request))
    return {} if found else None


def _has_reasoning(message: JsonObject) -> bool:
    return any(message.get(name) for name in REASONING_FIELDS)


def _check_choice_thinking(request: RawRequest) -> RuleFinding | None:
    able, choice = request.abilities, field(request, "tool_choice")
    if not able or not able.thinking or as_mapping(field(request, "thinking")).get("type") == "disabled":
        return None
    return {} if choice == "required" or as_mapping(choice) else None


def _list_stops(request: RawRequest) -> list[str]:
    given = field(request, "stop")
    return [given] if isinstance(given, str) else [word for word in as_list(given) if isinstance(word, str)]


def _check_stops_most(request: RawRequest) -> RuleFinding | None:
    most = request.abilities.stop_sequences_max if request.abilities else None
    return {"most": most} if most is not None and len(_list_stops(request)) > most else None


def _check_stop_length(request: RawRequest) -> RuleFinding | None:
    most = request.abilities.stop_bytes_max if request.abilities else None
    too_long = most is not None and any(len(word.encode()) > most for word in _list_stops(request))
    return {"most": most} if too_long else None


def _check_call_id_nine(request: RawRequest) -> RuleFinding | None:
    for message in messages(request):
        ids = [item.get("id") for item in calls(message)]
        ids += [message.get("tool_call_id")] if message.get("role") == "tool" else []
        bad = next((str(id_) for id_ in ids if not CALL_ID.fullmatch(str(id_))), None)
        if bad is not None:
            return {"id": bad}
    return None


def _check_arguments_json(request: RawRequest) -> RuleFinding | None:
    for message in messages(request):
        for item in calls(message):
            function = as_mapping(item.get("function"))
            if not _is_object(function.get("arguments")):
                return {"name": function.get("name")}
    return None


def _is_object(arguments: object) -> bool:
    """True for an object, or text that is one; missing arguments count as an empty object."""
    if isinstance(arguments, dict) or arguments in (None, ""):
        return True
    try:
        return is_too_deep(str(arguments)) or isinstance(parse_json(str(arguments)), dict)
    except ValueError:
        return False


_INSUFFICIENT = (
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each"
    " 'tool_call_id'. (insufficient tool messages following tool_calls message)"
)
_ECHO = "The `reasoning_content` in the thinking mode must be passed back to the API."
_ID = "Tool call id was {id} but must be a-z, A-Z, 0-9, with a length of 9."
_ARGUMENTS = (
    "Invalid tool call in messages: tool_calls[].function.arguments for function '{name}' must be a JSON"
    " object string (or an object), got invalid JSON."
)


ECHO_RULES = (
    rule(
        "stops-most",
        _check_stops_most,
        "Invalid request: at most {most} stop sequences are supported",
        evidence="K",
        models="with a limit",
    ),
    rule(
        "stop-length",
        _check_stop_length,
        "Invalid request: a stop sequence must be at most {most} bytes long",
        evidence="K",
        models="with a limit",
    ),
    rule("echo", _check_echo, _ECHO, evidence="S", models="that reason"),
    rule(
        "choice-thinking",
        _check_choice_thinking,
        "Thinking mode does not support this tool_choice",
        evidence="S",
        models="that reason",
    ),
    rule("model-exists", find_unknown_model, "Model Not Exist", evidence="S"),
    rule("results-sufficient", check_result_missing, _INSUFFICIENT, evidence="S"),
    rule(
        "results-called",
        check_result_orphan,
        "Messages with role 'tool' must be a response to a preceding message with 'tool_calls'",
        evidence="S",
    ),
)

STRIP_RULES = (
    refuse(
        "strip",
        "messages[]",
        _has_reasoning,
        "Reasoning input is not enabled for this model",
        evidence="S",
    ),
    refuse(
        "strip-parts",
        "messages[].content[]",
        lambda part: part.get("type") == "thinking",
        "Reasoning input is not enabled for this model",
        evidence="S",
        models="that do not reason",
        when=lambda able: not able.thinking and not able.efforts,
    ),
)

ID_RULES = (
    replace(
        rule("model-valid", find_unknown_model, "Invalid model: {model}", evidence="S", code="invalid_model"),
        kind="not_found",
    ),
    refuse(
        "image-enabled",
        "messages[].content[]",
        lambda part: part.get("type") == "image_url",
        "Image input is not enabled for this model",
        evidence="S",
        models="that see nothing",
        when=lambda able: not able.images,
        code="3051",
    ),
    rule("call-id-nine", _check_call_id_nine, _ID, evidence="S", code="invalid_function_call"),
)

PARSE_RULES = (rule("arguments-json", _check_arguments_json, _ARGUMENTS, evidence="S"),)
