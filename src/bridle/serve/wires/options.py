"""The options of a run that a client's request asks for.

The client's tools become tools that the caller runs, its system prompt follows the agent's own instructions, and its
options apply to the run. What cannot be carried is listed, by the name that the client's wire has for it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from bridle.core.budget.limits import OUTPUT_TOKENS_MIN
from bridle.core.context.media import find_unsupported_media
from bridle.ports.served_wire import ClientTool
from bridle.run.agent import Agent
from bridle.run.calls.handover import list_successors
from bridle.run.context.run_options import RunOptions
from bridle.tools.external_tool import ExternalTool
from bridle.values.calls import Policy
from bridle.values.errors import Failure, ProviderError
from bridle.values.message import Opaque
from bridle.values.model import Model
from bridle.values.request import Request, Sampling, ToolChoice, ToolSpec

from .client_view import is_reviewed
from .conversation import split_conversation

WIRE_FIELDS = frozenset(
    {"stream_options", "store", "previous_response_id", "metadata", "user", "include", "safety_identifier"}
    | {"prompt_cache_key", "prompt_cache_retention", "truncation", "n", "background", "client_metadata"}
)
"""Fields that concern the exchange and not the model; they are met or have no meaning here."""
RAISED_LIMIT = f"a token limit below {OUTPUT_TOKENS_MIN}, which was raised"
NEUTRAL_VALUES = {"n": "1", "truncation": '"disabled"', "background": "false"}
UNSUPPORTED = {
    "conversation": "send previous_response_id, or the whole conversation",
    "background": "send the request without it, and wait for the reply",
}
"""Fields that change what the reply is; a request with one is refused, with this advice."""
LATE_SYSTEM = "a system message after the first message of the user, which was sent as the user's"


TextSource = Literal["stream", "accepted", "answer"]
"""Text of a reply: as the model writes it, as hooks and validators accepted it, or only the answer."""


class ClientOptions(NamedTuple):
    run: RunOptions
    dropped: tuple[str, ...]
    """Names of what cannot be carried."""
    call_natives: Mapping[str, str]
    """By name of a tool, what its calls carry beyond a name and arguments (`ClientTool.call_native`)."""
    streamed_tools: frozenset[str] = frozenset()
    """Tools whose calls reach the client as the model writes them: no rule or hook may still decide about them."""
    streams_output: bool = False
    """True if an answer in JSON is a text of the model that nothing changes."""
    text_source: TextSource = "stream"


def read_options(
    agent: Agent[Any, Any], request: Request, client_tools: Sequence[ClientTool], *, carries_all: bool
) -> ClientOptions:
    """The options of the run; `carries_all`: also those that shape the answer, for an agent that only forwards."""
    dropped = [*_list_dropped(agent.settings.model, request)]
    run = RunOptions()
    tools = [*_read_tools(agent, client_tools, dropped)]
    if tools and (carries_all or request.tool_choice.mode != "none"):
        run["tools"] = [*agent.parts.inputs.tools, *tools]
    if system := "\n\n".join(text.text for text in request.system if text.text.strip()):
        own = agent.parts.inputs.instructions
        listed = own if isinstance(own, list | tuple) else () if own is None else (own,)
        run["instructions"] = [*listed, system]
    if request.tool_choice != ToolChoice() and (
        carries_all or (tools and request.tool_choice.mode != "none")
    ):
        run["tool_choice"] = replace(request.tool_choice, every_step=carries_all)
    if request.thinking is not None:
        run["thinking"] = request.thinking
    if request.sampling != Sampling():
        run["sampling"] = request.sampling
    if request.max_tokens is not None:
        run["max_tokens"] = max(request.max_tokens, OUTPUT_TOKENS_MIN)
        dropped += [RAISED_LIMIT] if request.max_tokens < OUTPUT_TOKENS_MIN else []
    if request.output is not None and carries_all:
        run["output"] = {"title": request.output.name or "answer", **json.loads(request.output.parameters)}
    elif request.output is not None:
        dropped.append("response format")
    natives = {tool.spec.name: tool.call_native for tool in reversed(client_tools) if tool.call_native}
    settings = agent.settings
    all_settings = (settings, *(each.settings for each in list_successors(agent.handovers)))
    is_free = all(each.policy == Policy() and not each.hooks for each in all_settings)
    source: TextSource = "accepted" if any(map(is_reviewed, all_settings)) else "stream"
    return ClientOptions(
        run,
        tuple(dict.fromkeys(dropped)),
        natives,
        frozenset(tool.spec.name for tool in tools if tool.spec.name not in natives)
        if is_free
        else frozenset(),
        is_free and settings.model.abilities.structured_output == "native",
        source if settings.output is None else "answer",
    )


def _list_dropped(model: Model, request: Request) -> Iterator[str]:
    new = split_conversation(request.messages).tail
    if any(message.role == "system" for message in new):
        yield LATE_SYSTEM
    for part in (part for message in new for part in message.parts):
        if isinstance(part, Opaque):
            yield f"part {part.kind}"
    for unsupported in (each for message in new for each in find_unsupported_media(message, model)):
        yield unsupported.change.text.strip("[]")
    for extra in request.extras:
        if extra.name in UNSUPPORTED and extra.json not in ("null", NEUTRAL_VALUES.get(extra.name)):
            message = f"'{extra.name}' is not supported here; {UNSUPPORTED[extra.name]}."
            raise ProviderError(Failure(kind="invalid", message=message, status=400))
        if extra.name not in WIRE_FIELDS or extra.json != NEUTRAL_VALUES.get(extra.name, extra.json):
            yield extra.name


def _read_tools(
    agent: Agent[Any, Any], tools: Sequence[ClientTool], dropped: list[str]
) -> Iterator[ExternalTool]:
    names: set[str] = set()
    for tool in tools:
        spec = tool.spec
        if spec.native is not None or spec.name in names:  # the provider's, or of another namespace
            dropped.append(f"tool {tool.qualified_name or spec.name}")
            continue
        names.add(spec.name)
        if spec.name in agent.tools:
            raise ProviderError(
                Failure(
                    kind="invalid",
                    message=f"The agent has a tool named {spec.name!r} of its own; rename yours.",
                    status=400,
                )
            )
        yield ExternalTool(
            ToolSpec(
                name=spec.name,
                description=spec.description,
                parameters=spec.parameters,
                external=True,
                is_checked=False,
                always_visible=True,
                on_unknown="retry",
            )
        )
