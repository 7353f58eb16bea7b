"""The options of a run that a client's request asks for.

The client's tools become tools that the caller runs, its system prompt follows the agent's own instructions, and its
options apply to the run. What cannot be carried is listed, by the name that the client's wire has for it.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast

from msgspec.structs import replace

from bridle.core.budget.limits import OUTPUT_TOKENS_MIN
from bridle.core.context.media import find_unsupported_media
from bridle.ports.served_wire import ClientTool
from bridle.providers.families import load_codec, load_served_wire
from bridle.run.agent import Agent
from bridle.run.calls.catalogue import is_brought, list_taken_names
from bridle.run.calls.handover import list_successors
from bridle.run.context.run_options import SETTINGS_OPTIONS, RunOptions
from bridle.run.logged_settings import take_logged_instructions
from bridle.tools.external import ExternalTool
from bridle.tools.schema.output_type import make_output_type
from bridle.values.calls import Policy
from bridle.values.errors import Failure, ProviderError
from bridle.values.message import Message
from bridle.values.model import Model
from bridle.values.request import (
    Extra,
    Request,
    Sampling,
    ToolChoice,
    ToolSpec,
    WireForm,
    digest_definition,
)
from bridle.values.settings import Settings
from bridle.values.text import parse_json

from .client_members import (
    CACHE_MARKS,
    has_cache_marks,
    is_readable_by_hooks,
    list_members,
    list_paths,
    list_system_members,
    list_unsent_reasoning,
)
from .client_view import is_reviewed
from .conversation import split_conversation

OWN_FIELDS = {
    "stream_options": "the stream is written here",
    "store": "the session is kept here",
    "prompt_cache_key": "the cache is kept by our own marks",
    "prompt_cache_retention": "the cache is kept by our own marks",
    "prompt_cache_options": "the cache is kept by our own marks",
    "cache_control": "the cache is kept by our own marks",
    "client_metadata": "it describes the client to its vendor",
    "metadata": "it labels the request at its vendor",
    "user": "it names the user to the vendor",
    "safety_identifier": "it names the user to the vendor",
    "betas": "it switches on what other fields ask for, which are carried or named themselves",
    "user_profile_id": "it names the user to the vendor",
    "workspace_id": "it names a part of an account at the vendor",
}
"""Fields that concern the exchange and not the answer, and what serves their purpose here. If one is not carried, it is
named, and no request is refused for it."""
REPLY_FIELDS = frozenset(
    {"n", "logprobs", "top_logprobs", "modalities", "audio", "diagnostics", "include", "compaction"}
    | {
        "candidateCount",
        "responseLogprobs",
        "responseModalities",
        "speechConfig",
        "logprobs",
        "continuationToken",
    }
)
"""Fields, and members of fields, that ask for something which replies from here do not have; never carried."""
MET_FIELDS = frozenset({"previous_response_id", "thread"})
"""Fields that choose the session, which is done here: never carried, and nothing of them is lost."""
RAW_FIELDS = ("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "cachedContent", "store")
"""Fields that a decoded request holds in another form, or holds without having been given them."""
NEUTRAL_VALUES = {
    "n": "1", "truncation": '"disabled"', "background": "false", "include": '["reasoning.encrypted_content"]',
    "stream_options": '{"include_usage":true}',
}  # fmt: skip
"""Values that say what is true without the field."""
OUTPUT_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Names of schemas that every provider takes."""
RAISED_LIMIT = f"a token limit below {OUTPUT_TOKENS_MIN}, which was raised"
UNSUPPORTED = {
    "conversation": "send previous_response_id, or the whole conversation",
    "background": "send the request without it, and wait for the reply",
}
"""Fields that change what the reply is; a request with one is refused, with this advice."""
ANSWER_FORMATS = {
    "response_format": ("type",),
    "text": ("format",),
    "output_config": ("format",),
    "output_format": ("type",),
    "generationConfig": ("responseSchema", "responseJsonSchema", "responseMimeType", "responseFormat"),
}
"""Members that require a form of the answer. One that no model of the chain can be told is refused: the answer would be
prose."""
PARTLY_READ = frozenset({*ANSWER_FORMATS, "reasoning", "thinking", "tool_choice", "toolConfig"})
"""Fields of which a request models some members; the others are named one by one."""
PLAIN_FORMATS = ("text", "text/plain")
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
    """True if an answer in JSON is the only text of the model, and nothing changes it."""
    text_source: TextSource = "stream"
    replaced: tuple[str, ...] = ()
    """Names of what is not carried because something here serves its purpose."""
    imported: tuple[str, ...] = ()
    """Names of what the conversation so far loses if this server does not know it yet."""
    import_notes: tuple[str, ...] = ()
    """Names of what no provider would take from such a conversation; no request is refused for it."""
    elsewhere: tuple[str, ...] = ()
    """Names of what a model of another wire family would not get, if the run falls back to one."""
    is_strict: bool = False
    is_free: bool = False
    """True if no rule and no hook decides about calls."""
    wraps_answer: bool = False
    """True if the answer is sent in an object to the model, and not to the client (`show_answer`)."""


class ClientRequest(NamedTuple):
    """A decoded request, with what else is known about it."""

    family: str
    request: Request
    tools: Sequence[ClientTool]
    fields: Mapping[str, bytes]
    """The members of the body as the client wrote them."""
    cache_mark: str
    """Name of a cache mark on this wire."""
    withheld: tuple[str, ...] = ()
    """Names of members that were removed from the messages because no hook would see them."""
    has_marks: bool = False
    """True if the client marked ends of cached prompts, which are read as such."""
    declarations: tuple[str, ...] = ()
    """Names of parts of messages that only declare tools."""


def read_options(
    agent: Agent[Any, Any], client: ClientRequest, *, carries_all: bool, is_strict: bool = False
) -> ClientOptions:
    """The options of the run; `carries_all`: also those that shape the answer, for an agent that only forwards."""
    request, client_tools = client.request, client.tools
    is_hooked = "before_model" in agent.settings.hook_points
    is_same = agent.settings.model.endpoint.family == client.family
    dropped = [*_list_dropped(agent.settings.model, client, is_same=is_same)]
    extras, lost, replaced = _split_extras(
        agent, client, is_hooked=is_hooked, is_same=is_same and carries_all
    )
    dropped += lost
    run = RunOptions()
    tools = [*_read_tools(agent, client, dropped, is_same=is_same, is_hooked=is_hooked)]
    if carries_all:
        run["extras"] = extras
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
    settings = agent.settings
    carries_output = carries_all or (settings.output is None and not agent.handovers)
    is_wrapped = False
    if request.output is not None and carries_output:
        told = {"description": request.output.description} if request.output.description else {}
        title = {"title": request.output.name or "answer"}
        made = make_output_type({**title, **told, **json.loads(request.output.parameters)})
        # A title in the schema is not the name that the client gave.
        name = request.output.name if OUTPUT_NAME.fullmatch(request.output.name) else made.name
        run["output"], is_wrapped = made._replace(is_of_client=True, name=name), made.is_wrapped
    elif request.output is not None:
        dropped.append("response format")
    natives = {tool.spec.name: tool.call_native for tool in reversed(client_tools) if tool.call_native}
    all_settings = (settings, *(each.settings for each in list_successors(agent.handovers)))
    turn = split_conversation(request.messages)
    is_free = all(each.policy == Policy() and not each.hooks for each in all_settings)
    source: TextSource = "accepted" if any(map(is_reviewed, all_settings)) else "stream"
    if settings.output is not None or ("output" in run and source == "accepted"):
        source = "answer"
    return ClientOptions(
        run,
        tuple(dict.fromkeys(dropped)),
        natives,
        frozenset(tool.spec.name for tool in tools if tool.spec.name not in natives)
        if is_free
        else frozenset(),
        is_free
        and not agent.tools
        and settings.model.abilities.structured_output == "native"
        and not is_wrapped,
        source,
        tuple(replaced),
        tuple(_list_unsent(client, turn.head) if is_same else list_members(turn.head)),
        list_unsent_reasoning(turn.head, settings.model, client.family),
        tuple(_list_elsewhere(agent, client, turn.tail)) if is_same else (),
        is_strict,
        is_free,
        is_wrapped,
    )


def complete_options(agent: Agent[Any, Any], given: RunOptions, overridden: Collection[str]) -> RunOptions:
    """The options of a request that continues a run: what it does not set is the agent's own again.

    `overridden` are the options that an earlier request of the run set.
    """
    inputs = agent.parts.inputs
    own = {
        name: getattr(inputs.settings if name in SETTINGS_OPTIONS else inputs, name)
        for name in overridden
        if name not in given
    }
    return cast("RunOptions", {**own, **given})


def keep_options(
    agent: Agent[Any, Any], options: ClientOptions, settings: Settings, keeps: Collection[str]
) -> ClientOptions:
    """The options with those that a continuation keeps: `settings` are those of the request before it."""
    if not keeps:
        return options
    kept = RunOptions()
    brought = [ExternalTool(spec) for spec in settings.all_tools if is_brought(spec)]
    if brought:
        kept["tools"] = [*agent.parts.inputs.tools, *brought]
    if any(override.option == "instructions" for override in settings.overrides):
        kept["instructions"] = take_logged_instructions(settings)
    given = cast(
        "RunOptions", {**{name: value for name, value in kept.items() if name in keeps}, **options.run}
    )
    streamed = options.streamed_tools.union(tool.spec.name for tool in brought) if options.is_free else ()
    return options._replace(run=given, streamed_tools=frozenset(streamed))


def _list_elsewhere(agent: Agent[Any, Any], client: ClientRequest, new: Sequence[Message]) -> Iterator[str]:
    """Names of what the models of another family in the chain would not get; extras have their own notes."""
    if all(model.endpoint.family == client.family for model in agent.settings.models):
        return
    yield from list_members(new)
    for tool in client.tools:
        yield from _name_tool_members(tool)


def _list_unsent(client: ClientRequest, messages: Sequence[Message]) -> dict[str, None]:
    """Names of members of messages that the client's own wire has, and does not get."""
    list_unsent = load_served_wire(client.family).list_unsent
    return dict.fromkeys(name for message in messages for name in list_unsent(message))


def _list_dropped(model: Model, client: ClientRequest, *, is_same: bool) -> Iterator[str]:
    request = client.request
    new = split_conversation(request.messages).tail
    if any(message.role == "system" for message in new):
        yield LATE_SYSTEM
    yield from _list_unsent(client, new) if is_same else list_members(new)
    yield from client.withheld
    yield from list_system_members(request)
    if request.compare_reply_id:
        yield "diagnostics"
    if request.asks_native_summary:
        yield "compaction"
    # A prompt has no origin in the log.
    sent = (message if message.role == "tool" else replace(message, origin=None) for message in new)
    for unsupported in (each for message in sent for each in find_unsupported_media(message, model)):
        yield unsupported.change.text.strip("[]")


def _split_extras(
    agent: Agent[Any, Any], client: ClientRequest, *, is_hooked: bool, is_same: bool
) -> tuple[tuple[Extra, ...], list[str], list[str]]:
    """The extras that are carried, and the names of those that are lost and of those that are replaced."""
    carried: list[Extra] = []
    lost: list[str] = []
    replaced: list[str] = []
    reserved = load_codec(client.family).reserved_fields
    written = {name: client.fields[name].decode() for name in RAW_FIELDS if name in client.fields}
    others = (extra for extra in client.request.extras if extra.name not in RAW_FIELDS)
    for extra in (*(Extra(name=name, json=json_) for name, json_ in written.items()), *others):
        name, value = extra.name, parse_json(extra.json)
        if value is None or name in MET_FIELDS or _is_neutral(extra):
            continue
        if name in UNSUPPORTED:
            message = f"'{name}' is not supported here; {UNSUPPORTED[name]}."
            raise ProviderError(Failure(kind="invalid", message=message, status=400))
        if name == "stream_options":
            replaced.append(f"{name} ({OWN_FIELDS[name]})")
            continue
        is_taken = is_same and name not in reserved and name not in REPLY_FIELDS
        if is_taken and is_hooked and not is_readable_by_hooks(extra.json):
            is_taken = False
        if is_taken and isinstance(value, dict):
            asked = [member for member in value if member in REPLY_FIELDS]
            lost += [f"{name}.{member}" for member in asked]
            value = {member: each for member, each in value.items() if member not in REPLY_FIELDS}
            if asked:
                extra = replace(extra, json=json.dumps(value))  # noqa: PLW2901 - without what replies lack
            if asked and not value:
                continue
        if is_taken:
            carried.append(replace(extra, owners=(client.family,), unlisted=True))
        elif name in OWN_FIELDS:
            replaced.append(f"{name} ({OWN_FIELDS[name]})")
        else:
            if agent.settings.output is None:
                _refuse_lost_format(agent, name, value)
            paths = list_paths(value) if name in PARTLY_READ else ((),)
            lost += dict.fromkeys(".".join((name, *path)) for path in paths)
    replaced += [f"{name} (its tools are declared one by one)" for name in client.declarations]
    parts = (part for message in client.request.messages for part in message.parts)
    is_marked = has_cache_marks(client.request.system) or (not is_same and has_cache_marks(parts))
    if client.has_marks or is_marked:
        replaced.append(f"{client.cache_mark} ({OWN_FIELDS['cache_control']})")
    for spec in client.request.tools:
        given = parse_json(spec.native) if spec.native else {}
        if given.get("type") == "namespace":
            replaced.append(f"tool {spec.name}: namespace (its tools are declared one by one)")
    return tuple(carried), lost, replaced


def _is_neutral(extra: Extra) -> bool:
    return extra.name in NEUTRAL_VALUES and parse_json(extra.json) == parse_json(NEUTRAL_VALUES[extra.name])


def _refuse_lost_format(agent: Agent[Any, Any], name: str, value: object) -> None:
    """Raise `ProviderError` if a form of the answer is required which the model would not be told."""
    if not isinstance(value, dict):
        return
    for member in ANSWER_FORMATS.get(name, ()):
        wanted = value.get(member)
        kind = wanted.get("type") if isinstance(wanted, dict) else wanted
        if wanted is not None and kind not in PLAIN_FORMATS:
            message = (
                f"'{name}.{member}' cannot be carried to {agent.settings.model.name}; ask for a JSON Schema in the form"
                " that docs/gateway.md names for your wire, or leave it out."
            )
            raise ProviderError(Failure(kind="invalid", message=message, status=400))


def _is_reference(spec: ToolSpec) -> bool:
    """True if the schema is a reference at its top, which providers refuse and the encoders resolve."""
    root = parse_json(spec.parameters)
    return "$ref" in root and root.get("type") != "object"


def _name_tool_members(tool: ClientTool) -> Iterator[str]:
    """Names of the members of a tool that only its wire has."""
    name = tool.qualified_name or tool.spec.name
    yield from (f"tool {name}: {member}" for member in sorted(tool.unread))
    if tool.definition and tool.spec.native is None:
        inside: Any = parse_json(tool.definition)
        function = inside.get("function")
        inside = {**inside, **function} if isinstance(function, dict) else inside
        for member in inside:
            if member not in TOOL_MEMBERS and member not in CACHE_MARKS:
                yield f"tool {name}: {member}"


TOOL_MEMBERS = frozenset(
    {
        "type",
        "name",
        "description",
        "parameters",
        "parametersJsonSchema",
        "input_schema",
        "function",
        "format",
        "custom",
    }
)
"""Members of definitions that `ToolSpec` has, under any wire's name."""


def _read_tools(
    agent: Agent[Any, Any], client: ClientRequest, dropped: list[str], *, is_same: bool, is_hooked: bool
) -> Iterator[ExternalTool]:
    names: set[str] = set()
    taken = list_taken_names(agent.tools, agent.settings)
    for tool in client.tools:
        spec = tool.spec
        if spec.native is not None or spec.name in names:  # the provider's, or of another namespace
            kind = parse_json(spec.native).get("type", "") if spec.native else ""
            dropped.append(f"tool {tool.qualified_name or spec.name or kind}")
            continue
        names.add(spec.name)
        # guard: client-tool-name-taken
        if spec.name in taken:
            raise ProviderError(
                Failure(
                    kind="invalid",
                    message=f"The agent has a tool named {spec.name!r} of its own; rename yours.",
                    status=400,
                )
            )
        made = ToolSpec(
            name=spec.name,
            description=spec.description,
            parameters=spec.parameters,
            external=True,
            is_checked=False,
            always_visible=True,
            on_unknown="retry",
        )
        has_form = bool(tool.definition) and is_same and not is_hooked and not _is_reference(spec)
        if has_form:
            form = WireForm(wire=client.family, json=tool.definition, digest=digest_definition(made))
            made = replace(made, wire_form=form)
        dropped += _name_tool_members(replace(tool, definition="") if has_form else tool)
        yield ExternalTool(made)
