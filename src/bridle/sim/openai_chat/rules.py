"""Rules of Chat Completions and of the servers that adopted the wire, with their own messages.

The order is the first party's as far as it is known: required fields, unknown fields, each field, what one
model does not support, and last the order of messages. `PROFILES` lists the rules of each kind of server.

Prompt and requested output together must fit into the context window, even if the answer would be short.
"""

from msgspec.structs import replace

from bridle.sim.openai.error_style import FIELD_CHECKS, rule
from bridle.sim.openai.rules_cache import cache_rules
from bridle.sim.openai.rules_models import JSON_RULE
from bridle.sim.rules.engine import ProviderRule, RawRequest, RuleFinding
from bridle.sim.rules.field_rules import FieldRow
from bridle.sim.rules.profiles import (
    ALTERNATION,
    COMPATIBLE,
    FIRST_PARTY,
    LOCAL,
    MUST_ECHO,
    SHORT_IDS,
    STRIP,
    ServerProfile,
)
from bridle.sim.rules.raw_request import field, find_unknown_model

from .rules_compatible_servers import ECHO_RULES, ID_RULES, PARSE_RULES, STRIP_RULES
from .rules_fields import MODEL_RULES, SETTING_RULES
from .rules_local_servers import LOCAL_RULES, TEMPLATE_RULES
from .rules_messages import CALL_RULES, MEDIA_RULES, MESSAGE_RULES
from .rules_tools import FORMAT_RULES, TOOL_RULES

BODY_FIELDS = ("audio", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs",
          "max_completion_tokens", "max_tokens", "messages", "metadata", "modalities", "model", "moderation",
          "n", "parallel_tool_calls", "prediction", "presence_penalty", "prompt_cache_key",
          "prompt_cache_options", "prompt_cache_retention", "reasoning_effort", "response_format",
          "safety_identifier", "seed", "service_tier", "stop", "store", "stream", "stream_options",
          "temperature", "tool_choice", "tools", "top_logprobs", "top_p", "user", "verbosity",
          "web_search_options")  # fmt: skip


def _check_model_required(request: RawRequest) -> RuleFinding | None:
    """Require a model, except where the path names the deployment."""
    return {} if not field(request, "model") and "/deployments/" not in request.path else None


def _check_model_word(request: RawRequest) -> RuleFinding | None:
    return {} if request.abilities is None and " " in str(field(request, "model")) else None


ENVELOPE_RULES = (
    JSON_RULE,
    rule("model-required", _check_model_required, "you must provide a model parameter", evidence="S"),
    rule("model-word", _check_model_word, "invalid model ID", evidence="S"),
    replace(
        rule(
            "model-known",
            find_unknown_model,
            "The model `{model}` does not exist or you do not have access to it.",
            evidence="S",
            code="model_not_found",
        ),
        status=404,
        kind="not_found",
    ),
    FIELD_CHECKS.required("messages", FieldRow(id="messages-required", evidence="S")),
    FIELD_CHECKS.only_fields("", BODY_FIELDS, FieldRow(id="fields", evidence="S")),
)


CACHE_RULES = cache_rules(("messages[].content[]",), ("mode", "ttl"), ("30m",), by_model=True)

FIRST_PARTY_RULES = (
    *ENVELOPE_RULES,
    *MESSAGE_RULES,
    *SETTING_RULES,
    *CACHE_RULES,
    *TOOL_RULES,
    *FORMAT_RULES,
    *MODEL_RULES,
    *MEDIA_RULES,
    *CALL_RULES,
)
OTHER_SERVER_RULES = (*LOCAL_RULES, *ECHO_RULES, *STRIP_RULES, *ID_RULES, *PARSE_RULES, *TEMPLATE_RULES)
RULES = (*FIRST_PARTY_RULES, *OTHER_SERVER_RULES)


def _rule_ids(*rules: ProviderRule) -> tuple[str, ...]:
    return tuple(each.id for each in rules)


COMMON_RULE_IDS = ("json", "messages-required", "messages-some", "role-required", "tool-function-required",
          "tool-name-required")  # fmt: skip

PROFILES = (
    ServerProfile(
        name=FIRST_PARTY,
        description="the provider whose wire it is, at its strictest",
        without=_rule_ids(*OTHER_SERVER_RULES),
    ),
    ServerProfile(
        name=COMPATIBLE,
        description="a server that took the wire over, with the few rules that all of them have",
        only=(*COMMON_RULE_IDS, "result-orphan", *_rule_ids(*PARSE_RULES)),
    ),
    ServerProfile(
        name=MUST_ECHO,
        description="a server that wants reasoning back with the calls it led to",
        only=(*COMMON_RULE_IDS, "tools-some", *_rule_ids(*ECHO_RULES)),
    ),
    ServerProfile(
        name=STRIP,
        description="a server that refuses to be told reasoning",
        only=(*COMMON_RULE_IDS, *_rule_ids(*STRIP_RULES)),
    ),
    ServerProfile(
        name=SHORT_IDS,
        description="a server whose ids of calls are nine letters and digits, and that refuses reasoning",
        only=(*COMMON_RULE_IDS, *_rule_ids(*STRIP_RULES, *ID_RULES)),
    ),
    ServerProfile(
        name=ALTERNATION,
        description="a template that wants user and assistant to take turns",
        only=(*COMMON_RULE_IDS, *_rule_ids(*TEMPLATE_RULES)),
    ),
    ServerProfile(
        name=LOCAL,
        description="a server on one's own machine, which takes nearly everything",
        only=(*_rule_ids(*LOCAL_RULES), "user-asked"),
    ),
)


def _find_overflow(request: RawRequest) -> RuleFinding | None:
    abilities, prompt = request.abilities, request.prompt_tokens
    if abilities is None:
        return None
    names = ("max_completion_tokens", "max_tokens")
    room = next((room for name in names if isinstance(room := request.body.get(name), int)), 0)
    if prompt + room <= abilities.context_tokens and prompt <= abilities.prompt_tokens_max:
        return None
    output = f", {room} in the output" if room else ""
    return {
        "most": abilities.context_tokens,
        "total": prompt + room,
        "prompt": prompt,
        "room": room,
        "output": output,
    }


def _window_rule(id_: str, wording: str, code: str, evidence: str = "S") -> tuple[ProviderRule, ...]:
    rule = ProviderRule(
        id=id_,
        find=_find_overflow,
        wording=wording,
        evidence=evidence,
        type=code,
        kind="context",
        param="messages",
    )
    return (rule,)


WINDOW_RULES = _window_rule(
    "prompt-window",
    "This model's maximum context length is {most} tokens. However, you requested {total} tokens"
    " ({prompt} in the messages, {room} in the completion)."
    " Please reduce the length of the messages or completion.",
    "context_length_exceeded",
)
_LOCAL_WINDOW = _window_rule(
    "local-window",
    "request ({total} tokens) exceeds the available context size ({most} tokens), try increasing it",
    "exceed_context_size_error",
)
WINDOW_RULES_BY_PROFILE = {
    LOCAL: _LOCAL_WINDOW,
    ALTERNATION: _LOCAL_WINDOW,
    STRIP: _window_rule(
        "strip-window", "Please reduce the length of the messages or completion.", "context_length_exceeded"
    ),
    SHORT_IDS: _window_rule(
        "short-ids-window",
        "Prompt contains {total} tokens and 0 draft tokens, too large for model with {most} maximum context"
        " length",
        "invalid_request_prompt",
        evidence="F",
    ),
    COMPATIBLE: _window_rule(
        "compatible-window",
        "This endpoint's maximum context length is {most} tokens. However, you requested about {total} tokens"
        " ({prompt} of text input{output}). Please reduce the length of either one, or use the"
        " context-compression plugin to compress your prompt automatically.",
        "context_length_exceeded",
    ),
}
"""Messages of other servers about a prompt that is too long; clients must recognize all of them."""
