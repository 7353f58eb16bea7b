"""What the Responses API refuses, in its own words.

The order is the provider's as far as it is known: what has to be there, what nobody knows, each field by
itself, input, tools, the shape of the answer, and last what one model cannot do.

What a model can do is never decided by its name: its abilities in the model table say it.  What depends on
what the provider keeps (responses, conversations, sealed reasoning) is not a matter of one request and is
not judged here.
"""

from msgspec.structs import replace

from ._rules_openai_prompts import prompt_rules
from ._rules_openai_responses_compaction import COMPACTION_RULES
from ._rules_openai_responses_items import ITEM_RULES
from ._rules_openai_responses_media import MEDIA_RULES
from ._rules_openai_responses_settings import SETTING_RULES
from ._rules_openai_responses_shape import (
    PLAIN,
    REASONS,
    SHAPES,
    asked,
    call,
    effort,
    output,
    reasons,
    text,
    user,
)
from ._rules_openai_responses_talk import TALK_RULES
from ._rules_openai_responses_tools import FORMAT_RULES, TOOL_RULES
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
    listing,
)
from .rules import Asked, Found

FIELDS = ("access_programs", "background", "client_metadata", "context_management", "conversation", "image",
          "include", "input", "instructions", "max_output_tokens", "max_tool_calls", "metadata", "model",
          "moderation", "parallel_tool_calls", "previous_response_id", "prompt", "prompt_cache_key",
          "prompt_cache_options", "prompt_cache_retention", "reasoning", "safety_identifier", "service_tier",
          "store", "stream", "stream_options", "temperature", "text", "tool_choice", "tools",
          "top_logprobs", "top_p", "truncation", "user")  # fmt: skip
MOVED = {
    "messages": "input",
    "response_format": "text.format",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "reasoning_effort": "reasoning.effort",
    "verbosity": "text.verbosity",
}
"""Fields of the older wire and where they are in this one."""


def _malformed(request: Asked) -> Found | None:
    return {} if request.malformed else None


def _unknown_model(request: Asked) -> Found | None:
    return {"model": field(request, "model")} if request.abilities is None else None


def _no_input(request: Asked) -> Found | None:
    given = ("input", "previous_response_id", "prompt", "conversation")
    return {} if all(field(request, name) is None for name in given) else None


def _moved(request: Asked) -> Found | None:
    return next(
        ({"name": name, "place": place} for name, place in MOVED.items() if name in request.body), None
    )


def _temperature(request: Asked) -> Found | None:
    able = request.abilities
    if able is None or able.sampling or effort(request) == "none":
        return None
    return {} if field(request, "temperature") not in (None, 1) else None


def _top_p(request: Asked) -> Found | None:
    able = request.abilities
    if able is None or able.sampling or effort(request) == "none":
        return None
    return {} if field(request, "top_p") is not None else None


def _logprobs(request: Asked) -> Found | None:
    wanted = field(request, "top_logprobs")
    return {} if reasons(request) and isinstance(wanted, int) and wanted > 0 else None


def _too_much_output(request: Asked) -> Found | None:
    able, wanted = request.abilities, field(request, "max_output_tokens")
    if able is None or not able.output_limited or not isinstance(wanted, int) or wanted <= able.output_tokens:
        return None
    return {"wanted": wanted, "most": able.output_tokens}


def _no_effort(request: Asked) -> Found | None:
    return {} if effort(request) and request.abilities and not request.abilities.efforts else None


def _bad_effort(request: Asked) -> Found | None:
    able, wanted = request.abilities, effort(request)
    if able is None or not able.efforts or not isinstance(wanted, str) or wanted in able.efforts:
        return None
    return {"effort": wanted, "model": field(request, "model"), "efforts": listing(able.efforts)}


_LIMITED = replace(REASONS, output_limited=True)

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
    SHAPES.required(
        "model",
        asked(),
        Row(
            id="model-required",
            only=lambda body: "prompt" not in body,
            evidence="S",
            says="Missing required parameter: 'model'.",
            also=((asked(model=None, input=None, prompt={"id": "pmpt_1"}), ""),),
        ),
        refuses=asked(model=None),
    ),
    replace(
        rule(
            "model-known",
            _unknown_model,
            "The requested model '{model}' does not exist.",
            param="model",
            evidence="S",
            passes=asked(),
            offends=to(None, asked(model="no-such-model")),
            says="The requested model 'no-such-model' does not exist.",
            code="model_not_found",
        ),
        kind="not_found",
    ),
    rule(
        "field-moved",
        _moved,
        "Unsupported parameter: '{name}'. In the Responses API, this parameter has moved to '{place}'."
        " Try again with the new parameter. See the API documentation for more information:"
        " https://platform.openai.com/docs/quickstart?api-mode=responses.",
        evidence="S",
        passes=asked(max_output_tokens=100),
        offends=asked(max_tokens=100),
        says="Unsupported parameter: 'max_tokens'. In the Responses API, this parameter has moved to"
        " 'max_output_tokens'. Try again with the new parameter. See the API documentation for more"
        " information: https://platform.openai.com/docs/quickstart?api-mode=responses.",
        code="unsupported_parameter",
    ),
    SHAPES.known(
        "",
        FIELDS,
        asked(store=False, include=["reasoning.encrypted_content"]),
        asked(stop=["END"]),
        Row(id="fields", evidence="S", says="Unknown parameter: 'stop'."),
    ),
    rule(
        "input-required",
        _no_input,
        "One of \"input\" or \"previous_response_id\" or 'prompt' or 'conversation_id' must be provided.",
        evidence="S",
        passes=asked(input=None, previous_response_id="resp_1"),
        offends=asked(input=None, instructions="Be brief."),
        code="missing_required_parameter",
    ),
    SHAPES.typed(
        "input",
        "string|array|null",
        asked(input=[user("Hello")]),
        asked(input=7),
        Row(
            id="input-type",
            evidence="F",
            says="Invalid type for 'input': expected one of an array of objects or string,"
            " but got an integer instead.",
        ),
        expected="one of an array of objects or string",
    ),
    SHAPES.typed(
        "input[]",
        "object",
        asked(input=[user("Hello")]),
        asked(input=["Hello"]),
        Row(
            id="item-type",
            evidence="F",
            says="Invalid type for 'input[0]': expected an object, but got a string instead.",
        ),
    ),
)

MODEL_RULES = (
    rule(
        "temperature-model",
        _temperature,
        "Unsupported parameter: 'temperature' is not supported with this model.",
        param="temperature",
        evidence="S",
        models="that take no sampling, while they reason",
        passes=asked(temperature=1),
        offends=asked(temperature=0.2),
        also=(
            (to(PLAIN, asked(temperature=0.2)), ""),
            (asked(temperature=0.2, reasoning={"effort": "none"}), ""),
        ),
    ),
    rule(
        "top-p-model",
        _top_p,
        "Unsupported parameter: 'top_p' is not supported with this model.",
        param="top_p",
        evidence="S",
        models="that take no sampling, while they reason",
        passes=to(PLAIN, asked(top_p=0.5)),
        offends=asked(top_p=1),
        also=((asked(), ""), (asked(top_p=0.5, reasoning={"effort": "none"}), "")),
    ),
    rule(
        "logprobs-model",
        _logprobs,
        "logprobs are not supported with reasoning models.",
        param="top_logprobs",
        evidence="S",
        models="that reason",
        passes=to(PLAIN, asked(top_logprobs=5)),
        offends=asked(top_logprobs=1),
        code="unsupported_parameter",
        also=((asked(top_logprobs=0), ""), (asked(top_logprobs=2, reasoning={"effort": "none"}), "")),
    ),
    rule(
        "output-most",
        _too_much_output,
        "Invalid 'max_output_tokens': integer above maximum value. Expected a value <= {most}, but got"
        " {wanted} instead.",
        param="max_output_tokens",
        evidence="K",
        models="with a known limit",
        passes=to(_LIMITED, asked(max_output_tokens=128_000)),
        offends=to(_LIMITED, asked(max_output_tokens=128_001)),
        says="Invalid 'max_output_tokens': integer above maximum value. Expected a value <= 128000, but got"
        " 128001 instead.",
        code="integer_above_max_value",
        also=(
            (to(None, asked(max_output_tokens=128_001)), ""),
            (to(REASONS, asked(max_output_tokens=128_001)), ""),
            (to(_LIMITED, asked()), ""),
        ),
    ),
    rule(
        "effort-model",
        _no_effort,
        "Unsupported parameter: 'reasoning.effort' is not supported with this model.",
        param="reasoning.effort",
        evidence="S",
        models="without efforts",
        passes=asked(reasoning={"effort": "low"}),
        offends=to(PLAIN, asked(reasoning={"effort": "low"})),
        code="unsupported_parameter",
        also=((to(PLAIN, asked(reasoning={"summary": "auto"})), ""),),
    ),
    rule(
        "effort-level",
        _bad_effort,
        "Unsupported value: '{effort}' is not supported with the '{model}' model. Supported values are:"
        " {efforts}.",
        param="reasoning.effort",
        evidence="S",
        models="with efforts",
        passes=asked(reasoning={"effort": "none"}),
        offends=asked(reasoning={"effort": "minimal"}),
        says="Unsupported value: 'minimal' is not supported with the 'some-model' model. Supported values"
        " are: 'none', 'low', 'medium', and 'high'.",
        code="unsupported_value",
        also=((asked(), ""), (to(PLAIN, asked(reasoning={"effort": "low"})), "")),
    ),
)


def _marked(who: str, point: Block) -> Asked:
    """Somebody's words, or what came of a call, with a breakpoint."""
    if who == "tool":
        piece = text("seen", prompt_cache_breakpoint=point)
        return asked(input=[user("Look"), call(), output(output=[piece])])
    kind = "output_text" if who == "assistant" else "input_text"
    piece = text("Hello", kind, prompt_cache_breakpoint=point)
    return asked(input=[{"role": who, "content": [piece]}, user("Go on")])


OPTIONS = ("mode", "ttl", "prewarm", "comparison_response_id")
PROMPT_RULES = prompt_rules(
    SHAPES, _marked, ("input[].content[]", "input[].output[]"), OPTIONS, ("30m", "12h")
)

RULES = (
    *ENVELOPE_RULES,
    *ITEM_RULES,
    *TOOL_RULES,
    *SETTING_RULES,
    *PROMPT_RULES,
    *COMPACTION_RULES,
    *FORMAT_RULES,
    *MODEL_RULES,
    *MEDIA_RULES,
    *TALK_RULES,
)
