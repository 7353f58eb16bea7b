"""Rules of local Chat Completions servers and their chat templates.

A template that cannot be rendered is reported as the server's own failure.
"""

from itertools import pairwise

from msgspec.structs import replace

from bridle.sim.openai.error_style import refuse, rule
from bridle.sim.rules.engine import ProviderRule, RawRequest, RuleFinding
from bridle.sim.rules.raw_request import JsonObject, as_list, find_malformed_json, messages

from .request import REASONING_FIELDS, calls

PART_TYPES = ("text", "image_url", "input_audio", "input_video", "video_url")


def _list_roles(request: RawRequest) -> list[str]:
    """List the roles after the instructions; calls and their results do not count."""
    sent = messages(request)
    first = 1 if sent and sent[0].get("role") in ("system", "developer") else 0
    return [str(item.get("role")) for item in sent[first:] if item.get("role") != "tool" and not calls(item)]


def _check_roles_alternate(request: RawRequest) -> RuleFinding | None:
    speakers = _list_roles(request)
    strangers = [role for role in speakers if role not in ("user", "assistant")]
    repeated = any(one == other for one, other in pairwise(speakers))
    return {} if repeated or strangers or speakers[:1] == ["assistant"] else None


def _check_user_asked(request: RawRequest) -> RuleFinding | None:
    sent = messages(request)
    return {} if sent and not any(message.get("role") == "user" for message in sent) else None


def _is_silent(message: JsonObject) -> bool:
    spoken = any(name in message for name in ("content", "tool_calls", *REASONING_FIELDS))
    return message.get("role") == "assistant" and not spoken


def _check_local_last_words(request: RawRequest) -> RuleFinding | None:
    last = [message.get("role") for message in messages(request)[-2:]]
    return {} if last == ["assistant", "assistant"] else None


def _as_server_error(rule_: ProviderRule) -> ProviderRule:
    """Return the same rule, reported as the server's own failure."""
    return replace(rule_, status=500, type="server_error", kind="server")


_ALTERNATE = (
    "After the optional system message, conversation roles must alternate user and assistant roles except for"
    " tool calls and results."
)

TEMPLATE_RULES = (
    _as_server_error(rule("roles-alternate", _check_roles_alternate, _ALTERNATE, evidence="S")),
    _as_server_error(rule("user-asked", _check_user_asked, "no user query found in messages", evidence="S")),
)

LOCAL_RULES = (
    rule(
        "local-json",
        find_malformed_json,
        "[json.exception.parse_error.101] parse error: {why}",
        evidence="F",
    ),
    refuse(
        "local-messages",
        "",
        lambda body: not isinstance(body.get("messages"), list),
        "Expected 'messages' to be an array",
        evidence="F",
    ),
    refuse(
        "local-content",
        "messages[]",
        lambda message: message.get("role") != "assistant" and "content" not in message,
        "All non-assistant messages must contain 'content'",
        evidence="S",
    ),
    refuse(
        "local-silent",
        "messages[]",
        _is_silent,
        "Assistant message must contain either 'content' or 'tool_calls'!",
        evidence="S",
    ),
    refuse(
        "local-part",
        "messages[].content[]",
        lambda part: part.get("type") not in PART_TYPES,
        "unsupported content[].type",
        evidence="F",
    ),
    rule(
        "local-last-words",
        _check_local_last_words,
        "Cannot have 2 or more assistant messages at the end of the list.",
        evidence="S",
    ),
    refuse(
        "local-grammar",
        "",
        lambda body: body.get("grammar") and as_list(body.get("tools")),
        "Cannot use custom grammar constraints with tools.",
        evidence="F",
    ),
    _as_server_error(
        refuse(
            "local-image",
            "messages[].content[]",
            lambda part: part.get("type") == "image_url",
            "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
            evidence="S",
            models="that see nothing",
            when=lambda able: not able.images,
        )
    ),
)
