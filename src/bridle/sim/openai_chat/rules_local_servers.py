"""Rules of local Chat Completions servers and their chat templates.

A template that cannot be rendered is reported as the server's own failure.
"""

from itertools import pairwise

from msgspec.structs import replace

from bridle.sim.openai.error_style import rule
from bridle.sim.rules.engine import ProviderRule, RawRequest, RuleFinding
from bridle.sim.rules.raw_request import as_list, field

from .request import REASONING_FIELDS, calls, messages, parts

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


def _check_local_messages(request: RawRequest) -> RuleFinding | None:
    return None if isinstance(field(request, "messages"), list) else {}


def _check_local_content(request: RawRequest) -> RuleFinding | None:
    found = any(item.get("role") != "assistant" and "content" not in item for item in messages(request))
    return {} if found else None


def _check_local_silent(request: RawRequest) -> RuleFinding | None:
    for message in messages(request):
        silent = not any(name in message for name in ("content", "tool_calls", *REASONING_FIELDS))
        if message.get("role") == "assistant" and silent:
            return {}
    return None


def _check_local_part(request: RawRequest) -> RuleFinding | None:
    for message in messages(request):
        if any(part.get("type") not in PART_TYPES for part in parts(message)):
            return {}
    return None


def _check_local_last_words(request: RawRequest) -> RuleFinding | None:
    last = [message.get("role") for message in messages(request)[-2:]]
    return {} if last == ["assistant", "assistant"] else None


def _check_local_image(request: RawRequest) -> RuleFinding | None:
    blind = request.abilities is not None and not request.abilities.images
    pictures = any(
        part.get("type") == "image_url" for message in messages(request) for part in parts(message)
    )
    return {} if blind and pictures else None


def _check_local_grammar(request: RawRequest) -> RuleFinding | None:
    return {} if field(request, "grammar") and as_list(field(request, "tools")) else None


def _check_local_json(request: RawRequest) -> RuleFinding | None:
    return {"why": request.malformed} if request.malformed else None


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
        "local-json", _check_local_json, "[json.exception.parse_error.101] parse error: {why}", evidence="F"
    ),
    rule("local-messages", _check_local_messages, "Expected 'messages' to be an array", evidence="F"),
    rule(
        "local-content",
        _check_local_content,
        "All non-assistant messages must contain 'content'",
        evidence="S",
    ),
    rule(
        "local-silent",
        _check_local_silent,
        "Assistant message must contain either 'content' or 'tool_calls'!",
        evidence="S",
    ),
    rule("local-part", _check_local_part, "unsupported content[].type", evidence="F"),
    rule(
        "local-last-words",
        _check_local_last_words,
        "Cannot have 2 or more assistant messages at the end of the list.",
        evidence="S",
    ),
    rule(
        "local-grammar",
        _check_local_grammar,
        "Cannot use custom grammar constraints with tools.",
        evidence="F",
    ),
    _as_server_error(
        rule(
            "local-image",
            _check_local_image,
            "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
            evidence="S",
            models="that see nothing",
        )
    ),
)
