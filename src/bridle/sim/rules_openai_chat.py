"""What Chat Completions refuses, in its own words, and what the servers refuse that took the wire over.

The order is the first party's as far as it is known: what has to be there, what nobody knows, each field by
itself, what one model does not take, and last how messages follow one another.

Servers differ more than their wire does.  `PROFILES` says which rules each kind of server has.
"""

from msgspec.structs import replace

from ._rules_openai_chat_local import LOCAL_RULES, TEMPLATE_RULES
from ._rules_openai_chat_media import MEDIA_RULES
from ._rules_openai_chat_messages import MESSAGE_RULES, TALK_RULES
from ._rules_openai_chat_others import ECHO_RULES, ID_RULES, PARSE_RULES, STRIP_RULES
from ._rules_openai_chat_settings import MODEL_RULES, SETTING_RULES
from ._rules_openai_chat_shape import (
    SHAPES,
    asked,
    text,
    tool,
    user,
)
from ._rules_openai_chat_tools import FORMAT_RULES, TOOL_RULES
from ._rules_openai_prompts import prompt_rules
from ._rules_openai_shape import (
    rule,
)
from ._rules_reading import (
    Block,
    field,
    to,
)
from ._rules_shapes import (
    Row,
)
from .profiles import ALTERNATION, COMPATIBLE, FIRST_PARTY, LOCAL, MUST_ECHO, SHORT_IDS, STRIP, Profile
from .rules import Asked, Found, Rule

FIELDS = ("audio", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs",
          "max_completion_tokens", "max_tokens", "messages", "metadata", "modalities", "model", "moderation",
          "n", "parallel_tool_calls", "prediction", "presence_penalty", "prompt_cache_key",
          "prompt_cache_options", "prompt_cache_retention", "reasoning_effort", "response_format",
          "safety_identifier", "seed", "service_tier", "stop", "store", "stream", "stream_options",
          "temperature", "tool_choice", "tools", "top_logprobs", "top_p", "user", "verbosity",
          "web_search_options")  # fmt: skip


def _malformed(request: Asked) -> Found | None:
    return {} if request.malformed else None


def _no_model(request: Asked) -> Found | None:
    """Where deployments have addresses, the model is in the path and need not be in the body."""
    return {} if not field(request, "model") and "/deployments/" not in request.path else None


def _odd_model(request: Asked) -> Found | None:
    return {} if request.abilities is None and " " in str(field(request, "model")) else None


def _unknown_model(request: Asked) -> Found | None:
    return {"model": field(request, "model")} if request.abilities is None else None


ENVELOPE_RULES = (
    rule(
        "json",
        _malformed,
        "We could not parse the JSON body of your request. (HINT: This likely means you aren't using your"
        " HTTP library correctly. The OpenAI API expects a JSON payload, but what was sent was not valid"
        " JSON. If you have trouble figuring out how to fix this, please contact us through our help center"
        " at help.openai.com.)",
        evidence="S",
        passes=asked(),
        offends=replace(asked(), malformed="Expecting value: line 1 column 1 (char 0)"),
    ),
    rule(
        "model-required",
        _no_model,
        "you must provide a model parameter",
        evidence="S",
        passes=asked(),
        offends=asked(model=None),
        also=((replace(asked(model=None), path="/deployments/mine/chat/completions"), ""),),
    ),
    rule(
        "model-word",
        _odd_model,
        "invalid model ID",
        evidence="S",
        passes=asked(),
        offends=to(None, asked(model="no such model")),
        also=((asked(model="my model"), ""), (to(None, asked(model="no-such-model")), "")),
    ),
    replace(
        rule(
            "model-known",
            _unknown_model,
            "The model `{model}` does not exist or you do not have access to it.",
            evidence="S",
            passes=asked(),
            offends=to(None, asked(model="no-such-model")),
            says="The model `no-such-model` does not exist or you do not have access to it.",
            code="model_not_found",
        ),
        status=404,
        kind="not_found",
    ),
    SHAPES.required(
        "messages",
        asked(),
        Row(id="messages-required", evidence="S", says="Missing required parameter: 'messages'."),
        refuses=asked(messages=None),
    ),
    SHAPES.known(
        "",
        FIELDS,
        asked(store=False, seed=1, user="u", tools=[tool()], messages=[user("Hello")]),
        asked(top_k=5),
        Row(id="fields", evidence="S", says="Unknown parameter: 'top_k'."),
    ),
)


def _marked(who: str, point: Block) -> Asked:
    piece = {**text(), "prompt_cache_breakpoint": point}
    return asked(messages=[{"role": who, "content": [piece]}])


PROMPT_RULES = prompt_rules(
    SHAPES, _marked, ("messages[].content[]",), ("mode", "ttl"), ("30m",), by_model=True
)

OWN = (
    *ENVELOPE_RULES,
    *MESSAGE_RULES,
    *SETTING_RULES,
    *PROMPT_RULES,
    *TOOL_RULES,
    *FORMAT_RULES,
    *MODEL_RULES,
    *MEDIA_RULES,
    *TALK_RULES,
)
OTHERS = (*LOCAL_RULES, *ECHO_RULES, *STRIP_RULES, *ID_RULES, *PARSE_RULES, *TEMPLATE_RULES)
RULES = (*OWN, *OTHERS)


def _ids(*rules: Rule) -> tuple[str, ...]:
    return tuple(each.id for each in rules)


COMMON = ("json", "messages-required", "messages-some", "role-required", "tool-function-required",
          "tool-name-required")  # fmt: skip

PROFILES = (
    Profile(
        name=FIRST_PARTY,
        about="the provider whose wire it is, at its strictest",
        without=_ids(*OTHERS),
    ),
    Profile(
        name=COMPATIBLE,
        about="a server that took the wire over, with the few rules that all of them have",
        only=(*COMMON, "result-orphan", *_ids(*PARSE_RULES)),
    ),
    Profile(
        name=MUST_ECHO,
        about="a server that wants reasoning back with the calls it led to",
        only=(*COMMON, "tools-some", *_ids(*ECHO_RULES)),
    ),
    Profile(
        name=STRIP,
        about="a server that refuses to be told reasoning",
        only=(*COMMON, *_ids(*STRIP_RULES)),
    ),
    Profile(
        name=SHORT_IDS,
        about="a server whose ids of calls are nine letters and digits, and that refuses reasoning",
        only=(*COMMON, *_ids(*STRIP_RULES, *ID_RULES)),
    ),
    Profile(
        name=ALTERNATION,
        about="a template that wants user and assistant to take turns",
        only=(*COMMON, *_ids(*TEMPLATE_RULES)),
    ),
    Profile(
        name=LOCAL,
        about="a server on one's own machine, which takes nearly everything",
        only=(*_ids(*LOCAL_RULES), "user-asked"),
    ),
)
