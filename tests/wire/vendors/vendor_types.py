"""Judges the requests we send by the vendors' published types and by the combinations their documents forbid.

    judge(url, body)    what is wrong with a request

The types are in `vendor_shapes.json`.  What types cannot say is in `vendor_rules.py`.
"""

import re
from functools import cache

import msgspec

from tests.wire.vendors.vendor_rules import broken_rules
from tests.wire.vendors.vendor_shapes import Addition, Shapes, Violation

PATHS = (
    (r"/v1/messages/count_tokens$", "anthropic count"),
    (r"/v1/messages$", "anthropic"),
    (r":(rawPredict|streamRawPredict)$", "anthropic"),
    (r"/responses/compact$", "openai_responses compact"),
    (r"/responses/input_tokens$", "openai_responses count"),
    (r"/responses$", "openai_responses"),
    (r"/chat/completions$", "openai_chat"),
    (r":(generateContent|streamGenerateContent)$", "gemini"),
    (r":countTokens$", "gemini count"),
    (r"/cachedContents$", "gemini store"),
    (r"/converse$", "bedrock_converse"),
    (r"/converse-stream$", "bedrock_converse stream"),
    (r"/count-tokens$", "bedrock_converse count"),
)
"""Which root describes the body, by the end of the path."""


def always(body):
    return True


def is_other_vendor(body):
    """A server that speaks OpenAI's format and is not OpenAI: its models have other names."""
    return not re.match(r"gpt-|o\d", str(body.get("model")))


ECHOED = "DeepSeek, Kimi, GLM, MiniMax, OpenRouter and local servers want reasoning back under these names."


def is_on_vertex(body):
    return "anthropic_version" in body


COMPACTED = (
    "Messages that /responses/compact returned carry ids; its guide says to pass its output on as it is."
)
WITHOUT_IDS = (
    "An item that is stored may not be stored again, so it goes without its id; Codex sends no ids at all."
)
VERTEX = "On Vertex the model is in the path and the version in the body, as the vendor's own Vertex client sends it."
MISTRAL_CONTENT = [
    "[]", ["|", "#o.ChatCompletionContentPartTextParam", "#o.ChatCompletionContentPartImageParam", "#x.DocumentUrl"]
]  # fmt: skip
SERVER_TOOLS = [
    "[]",
    [
        "|",
        "#o.ChatCompletionFunctionToolParam",
        "#o.ChatCompletionCustomToolParam",
        "#x.OpenRouterSearch",
        "#x.GroqTool",
    ],
]
ADDITIONS = (
    Addition(
        "gemini", "g.Part", "thoughtSignature", ["=", "skip_thought_signature_validator"],
        "Google documents these words, unencoded, in the place of a signature for calls of another model.", always,
    ),
    Addition(
        "openai_chat", "o.ChatCompletionAssistantMessageParam", "reasoning_content", "str", ECHOED, is_other_vendor
    ),
    Addition("openai_chat", "o.ChatCompletionAssistantMessageParam", "reasoning", "str", ECHOED, is_other_vendor),
    Addition(
        "openai_chat", "o.ChatCompletionAssistantMessageParam", "reasoning_details", ["[]", "any"], ECHOED,
        is_other_vendor,
    ),
    *(
        Addition("openai_chat", shape, member, node, why, is_other_vendor)
        for shape in ("o.CompletionCreateParamsNonStreaming", "o.CompletionCreateParamsStreaming")
        for member, node, why in (
            ("thinking", ["{}", "any"], "DeepSeek, Kimi and GLM switch thinking on and off here."),
            ("reasoning_split", "bool", "MiniMax: reasoning is kept apart from the answer."),
            ("tool_choice", ["=", "any"], "Mistral's word for required."),
            ("tools", SERVER_TOOLS, "OpenRouter and Groq have tools of their own."),
        )
    ),
    Addition(
        "openai_chat", "o.ChatCompletionToolMessageParam", "content",
        MISTRAL_CONTENT,
        "Mistral takes pictures and documents in results.", is_other_vendor,
    ),
    Addition(
        "openai_chat", "o.ChatCompletionUserMessageParam", "content",
        MISTRAL_CONTENT,
        "Mistral takes documents as document_url.", is_other_vendor,
    ),
    *(
        Addition("anthropic", f"a.MessageCreateParams{kind}", member, node, VERTEX, is_on_vertex)
        for kind in ("NonStreaming", "Streaming", "NonStreaming~2", "Streaming~2")
        for member, node in (("anthropic_version", "str"), ("model", None))
    ),
    *(
        Addition("openai_responses", shape, "id", None, WITHOUT_IDS, always)
        for shape in ("o.ResponseOutputMessageParam", "o.ResponseReasoningItemParam")
    ),
    *(
        Addition("openai_responses", shape, "id", "str", COMPACTED, always) for shape in ("o.Message", "o.Message~2")
    ),
)  # fmt: skip
"""What is documented and right although the published types lack it."""


@cache
def shapes_with(numbers):
    """The types with these rows of `ADDITIONS`."""
    return Shapes([ADDITIONS[number] for number in numbers])


def root_of(url):
    path = url.partition("?")[0]
    return next((name for pattern, name in PATHS if re.search(pattern, path)), None)


def type_violations(name, body, betas=None, counted=None):
    """What is wrong by the types and by `ADDITIONS`; bodies that need one of them are counted in `counted`.

    `betas` is the header that asks for betas, None where it is not known.  Stable types hold without it, beta types
    with it; where it is not known, either may hold.
    """
    names = [name]
    if name.startswith("anthropic"):
        beta = name.replace("anthropic", "anthropic beta")
        names = [name, beta] if betas is None else [beta] if betas else [name]
    if any(shapes_with(()).is_valid(each, body) for each in names):
        return []
    family = name.split()[0]
    known = tuple(n for n, each in enumerate(ADDITIONS) if each.root == family and each.when(body))
    if any(shapes_with(known).is_valid(each, body) for each in names):
        if counted is not None:
            plain = min((shapes_with(()).violations(each, body) for each in names), key=len)
            counted.update({(family, wrong.kind, wrong.place) for wrong in plain})
        return []
    return min((shapes_with(known).violations(each, body) for each in names), key=len)


def judge(url, raw, betas=None, counted=None):
    """What is wrong with a request: by its types, and if nothing is, by what documents say beside them."""
    name = root_of(url)
    if name is None:
        return [Violation("unknown path", url, "")]
    try:
        body = msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        return [Violation("not JSON", "", str(error))]
    if found := type_violations(name, body, betas, counted):
        return found
    return [
        Violation("forbidden combination", "", told)
        for told in broken_rules(name.removesuffix(" stream"), body)
    ]
