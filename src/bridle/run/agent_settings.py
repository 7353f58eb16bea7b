"""The optional settings of an agent, the parsing of its inputs, and the parts that an agent is made of.

Each option is a field of `Settings` with the same name, so it is logged as given, and a new option is one
line in `AgentOptions`.  An unknown name is refused with the nearest known one.
"""

import os
import tomllib
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as replace_inputs
from difflib import get_close_matches
from typing import TYPE_CHECKING, Generic, TypeAlias, TypedDict, TypeVar, cast

import msgspec
from msgspec.structs import replace

from bridle.core.calls.permission import find_blind_rule, find_dead_rule
from bridle.ports.sandbox import Sandbox
from bridle.ports.tool import HidesDefaults, Json, Tool, ToolSource
from bridle.ports.tool_index import ToolIndex
from bridle.providers import load_codec
from bridle.run.calls.catalogue import ToolLayout, make_tool_layout
from bridle.run.calls.code_mode import BoundCodeMode
from bridle.run.context.instructions import AgentInstructions, parse_instructions
from bridle.run.context.registered_hooks import RegisteredHooks
from bridle.run.context.run_context import ContextNeed, check_context_types, list_tool_needs
from bridle.tools.collect_tools import ToolLike, collect_tools, split_sources
from bridle.tools.output_functions import OutputFunctions, add_output_functions, make_output
from bridle.tools.schema.output_type import OutputType
from bridle.transports.deadlines import Deadlines
from bridle.values.cache import ServerStateStrategy
from bridle.values.calls import Policy
from bridle.values.errors import MisuseError
from bridle.values.events import ToolsChanged
from bridle.values.media import read_at_most
from bridle.values.memory import Memory
from bridle.values.model import Model
from bridle.values.request import OutputSpec, Sampling, StepOptions, Thinking, ToolChoice
from bridle.values.settings import (
    CacheBy,
    CacheTtl,
    Compaction,
    KeepRaw,
    OnAdjusted,
    OnTruncation,
    PrefixRule,
    Settings,
    ToolCatalogue,
    ToolErrors,
)
from bridle.values.usage import RateLimit

from .model_connection import ModelChain, ModelLike, make_model_chain, resolve_model
from .private_extras import PrivateExtras, hide_extras, label_owners
from .result import OutputChecker, parse_validators
from .validate_input import (
    check_chosen,
    check_given,
    check_numbers,
    check_round_trip,
    check_sampling,
    check_store_location,
    check_thinking,
    confine_tools,
    parse_tool_choice,
)


class AgentOptions(TypedDict, total=False):
    """The keyword options of `Agent`."""

    rate_limits: tuple[RateLimit, ...]
    """Calls and tokens per period of endpoints, tenants and tools; a call waits until it fits."""
    name: str
    """Name of the agent, used in per-agent totals and in the cache keys sent to providers."""
    version: str
    """Label of the agent's code. A run that began under one is continued only under it, or by an agent that lists it in
    `continues`."""
    continues: tuple[str, ...]
    """Versions besides `version` whose unfinished runs this agent continues."""
    max_tokens: int | None
    """Maximum tokens of one reply."""
    repeats_max: int | None
    """Identical results of the same call after which the run ends; None for no limit."""
    reprompts_max: int
    """Notices in a row to a model whose reply was cut off, empty or malformed; 0 ends the run with that reply."""
    attempts_max: int
    """Requests per reply to one model."""
    handovers_max: int | None
    """Hand-overs of a run after which this agent ends it instead of handing it over again; None for no limit."""
    approval_seconds: float | None
    """Time until a pending approval expires; None for no limit."""
    result_characters: int | None
    """Longer tool results are shown as an excerpt with a way to read the rest; None for the whole result."""
    reply_calls_max: int | None
    """Maximum tool calls in one reply; a reply with more ends the run and runs none; None for no limit."""
    reply_bytes_max: int | None
    """Maximum bytes of one reply on the wire; a longer reply is abandoned and not retried."""
    keep_raw: KeepRaw | None
    """Keep the bytes of replies, and of requests if wanted, for `bridle show --as raw`; None for neither."""
    chain: ServerStateStrategy
    """Let the provider store the conversation: True refers to the previous reply, `"conversation"` to an object."""
    cache_ttl: CacheTtl
    """Minimum cache lifetime, where a provider offers a choice; `auto` follows the pauses of the session."""
    cache_by: CacheBy
    """Scope of cache keys: `agent` shares cached prompts between tenants, `tenant` separates them."""
    cache_shards: int
    """Number of cache keys: one per fifteen calls a minute that a tenant's sessions make together."""
    cache_by_name: bool
    """Store tools and instructions by name at providers that sell storage, when it saves money."""
    prefix: PrefixRule
    """`strict` ends a run before it pays for a prompt whose cached prefix has changed."""
    compaction: Compaction | None
    """Size at which a conversation is compacted, its size afterwards, and the model that does it; None for never."""
    context_tokens: int | None
    """Context window in tokens; overrides the model table."""
    memory: Memory | None
    """Notes shown before every conversation, stored per tenant and per session; None for no memory."""
    on_adjusted: OnAdjusted
    """Reaction to a tool choice, extra or hosted tool that the model does not accept: `event` records that
    it was not sent, `error` ends the run."""
    tool_errors: ToolErrors
    """Reaction to an exception that a tool did not declare: `report` tells the model, `raise` ends the run."""
    on_truncation: OnTruncation
    """Reaction to a prompt that the server seems to have truncated: `event` or `error`."""


NUMBER_OPTIONS = (
    "cache_shards", "max_tokens", "repeats_max", "attempts_max", "result_characters", "context_tokens",
    "reply_calls_max", "reply_bytes_max", "handovers_max", "reprompts_max",
)  # fmt: skip


def check_options(given: Mapping[str, object], taker: Callable[..., None]) -> None:
    """Raise `TypeError` or `MisuseError` for a bad option; hints include the parameters of `taker`."""
    for name in given:
        if name not in AgentOptions.__annotations__:
            others = (other for other in taker.__annotations__ if other not in ("options", "return"))
            near = get_close_matches(name, (*AgentOptions.__annotations__, *others), n=1)
            hint = f": did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"Agent has no option {name!r}{hint}")
    version, continued = given.get("version", ""), given.get("continues", ())
    if not isinstance(version, str):
        raise MisuseError(f"version must be a text, not {version!r}")
    is_list = isinstance(continued, Sequence) and not isinstance(continued, str)
    if not is_list or not all(isinstance(each, str) and each for each in cast("Sequence[object]", continued)):
        raise MisuseError(f"continues must be a list of versions, not {continued!r}")
    limits = given.get("rate_limits", ())
    if not isinstance(limits, Sequence) or not all(isinstance(limit, RateLimit) for limit in limits):
        raise MisuseError(f"rate_limits must be a list of RateLimit(…), not {limits!r}")
    memory = given.get("memory")
    if memory is not None and not isinstance(memory, Memory):
        raise MisuseError(f"memory must be a Memory() or None, not {memory!r}")
    raw = given.get("keep_raw")
    if raw is not None and not isinstance(raw, KeepRaw):
        raise MisuseError(f"keep_raw must be a KeepRaw() or None, not {raw!r}")
    check_numbers(bytes_max=raw.bytes_max if raw is not None else None)
    check_numbers(characters_max=memory.characters_max if memory is not None else None)
    check_numbers(**{name: given[name] for name in NUMBER_OPTIONS if name in given})


def resolve_summarizer(given: AgentOptions) -> AgentOptions:
    """Return the options with the summarizing model looked up; raises `MisuseError` for bad shares."""
    if continued := given.get("continues"):
        given = {**given, "continues": tuple(continued)}
    if limits := given.get("rate_limits"):
        given = {**given, "rate_limits": tuple(limits)}
    compaction = given.get("compaction")
    if compaction is None:
        return given
    if not isinstance(compaction, Compaction):
        raise MisuseError(f"compaction must be a Compaction(at=…, to=…) or None, not {compaction!r}")
    in_order = 0 < compaction.to < compaction.at <= 1 and 0 <= compaction.keep < compaction.to
    if not in_order or compaction.pictures < 0:
        raise MisuseError(
            f"compaction requires 0 <= keep < to < at <= 1 and pictures >= 0, not {compaction!r}"
        )
    if not compaction.model:
        return given
    return {**given, "compaction": replace(compaction, model=resolve_model(compaction.model))}


ToolChoiceLike = str | ToolChoice
ToolChoiceInput = ToolChoiceLike | Callable[[int], ToolChoiceLike]
"""`auto`, `any`, `none`, the name of a tool, or a function of the step number returning one of these."""
ThinkingInput = Thinking | Callable[[int], Thinking | None] | None
"""Reasoning options, or a function of the step number returning them."""
SamplingInput = Sampling | Callable[[int], Sampling | None] | None
"""Sampling options, or a function of the step number returning them; None for the model's defaults."""
STEP_OPTIONS = ("tool_choice", "thinking", "sampling")
"""Options that may be functions of the step."""
CHECKED_INPUTS = (*STEP_OPTIONS, "deadlines", "tool_index", "context_type")
POLICY_BYTES_MAX = 1_000_000
OUTPUT_TOKENS_WITHOUT_STREAM_MAX = 21_333


T = TypeVar("T")


if TYPE_CHECKING:
    from typing_extensions import TypeForm

    OneOutput: TypeAlias = type[T] | TypeForm[T] | Callable[..., Awaitable[T] | T]
    OutputLike: TypeAlias = OneOutput[T] | OutputType[T] | Sequence[OneOutput[T]] | Mapping[str, Json]
    TEXT_OUTPUT: OutputType[str]
else:
    OutputLike = type[T] | Callable[..., T] | OutputType[T] | Sequence[type[T]] | Mapping[str, Json]
    OneOutput = type[T] | Callable[..., T]
    TEXT_OUTPUT = None
"""Type of an answer: one type or function, a union of types, a list of types and functions, or a JSON Schema.
`TEXT_OUTPUT` is None; its declared type lets type checkers infer `str` for an agent without an output type."""


def parse_output(output: OutputLike[T] | None) -> tuple[OutputType[T] | None, OutputFunctions]:
    if output is None or isinstance(output, OutputType):
        return output, {}
    return make_output(output)


def make_output_spec(
    shape: OutputType[T] | None, models: Sequence[Model], tools: Collection[str], choice: ToolChoice
) -> OutputSpec | None:
    """The output request for the first model, checked for all models, because any may be asked later."""
    if shape is None:
        return None
    spec = OutputSpec(
        name=shape.name,
        parameters=shape.schema,
        description=shape.description,
        functions=tuple(shape.functions),
        is_wrapped=shape.is_wrapped and shape.is_of_client,
    )
    native = [model for model in models if spec.mode_for(model) == "native"]
    reasons = [
        (model.model_key, load_codec(model.endpoint.family).explain_unsupported_output(spec, model))
        for model in native
    ]
    spec = replace(spec, unsupported_models=tuple((key, why) for key, why in reasons if why))
    calling = [model.name for model in models if spec.mode_for(model) == "tool"]
    if calling and shape.name in tools:
        raise MisuseError(f"the output type and a tool are both named {shape.name!r}; rename one")
    if calling and choice.mode == "none":
        raise MisuseError(
            f"{calling[0]} returns structured output through a tool call, which tool_choice='none' forbids"
        )
    return replace(spec, mode=spec.mode_for(models[0]))


def read_policy(path: str | os.PathLike[str]) -> Policy:
    """Read a policy from a TOML file; raises `MisuseError` if the file is unreadable or invalid."""
    try:
        given = tomllib.loads(read_at_most(path, POLICY_BYTES_MAX).decode())
        return msgspec.convert(given, Policy)
    except OSError as error:
        raise MisuseError(f"cannot read the policy {os.fspath(path)!r}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise MisuseError(f"{os.fspath(path)!r} is not a valid policy: {error}") from None


def load_policy(given: Policy | str | os.PathLike[str] | None) -> Policy:
    check_given(policy=given)
    if isinstance(given, Policy):
        return given
    return Policy() if given is None else read_policy(given)


def check_policy_rules(settings: Settings, tools: Mapping[str, Tool]) -> Settings:
    """Return the settings; raises `MisuseError` for a rule that never matches or tests a hidden argument."""
    unseen = {name: tool.unseen_defaults for name, tool in tools.items() if isinstance(tool, HidesDefaults)}
    specs = tuple({**settings.tools_by_name, **{name: tool.spec for name, tool in tools.items()}}.values())
    fault = find_dead_rule(settings.policy, specs) or find_blind_rule(settings.policy, specs, unseen)
    if fault:
        raise MisuseError(fault)
    return settings


NO_TOOLS: tuple[Tool[object], ...] = ()
"""Default of `tools`; its type lets type checkers infer that any context will do."""


@dataclass(frozen=True)
class AgentInputs(Generic[T]):
    """Arguments of an agent that are checked together; a run may replace some (run/context/run_options.py)."""

    settings: Settings
    """Settings that depend on no other argument."""
    model: ModelLike | Sequence[ModelLike]
    deadlines: Deadlines | None
    tools: Iterable[ToolLike]
    tool_index: ToolIndex | None
    tool_choice: ToolChoiceInput
    instructions: object
    thinking: ThinkingInput
    sampling: SamplingInput
    output: OutputLike[T] | None
    validate: object
    context_type: object
    hooks: RegisteredHooks
    sandbox: Sandbox | None
    store: object
    code_mode: BoundCodeMode | None = None


@dataclass(frozen=True, kw_only=True)
class AgentParts(Generic[T]):
    """The parts of an agent, checked for consistency."""

    inputs: AgentInputs[T]
    settings: Settings
    model_chain: ModelChain
    tool_layout: ToolLayout
    output_type: OutputType[T] | None
    choose_options: Callable[[int], StepOptions] | None
    """The options of a step, if functions choose some of them."""
    private_extras: PrivateExtras
    """Values of extras, which are not part of the settings."""
    context_needs: tuple[ContextNeed, ...]
    instructions: AgentInstructions
    output_checker: OutputChecker
    sources: tuple[ToolSource, ...] = ()
    """Servers of tools, to be connected when a run starts (run/calls/tool_sources.py)."""
    connected_sources: tuple[ToolSource, ...] = ()
    tool_reports: tuple[ToolsChanged, ...] = ()
    """Reports about connected servers, to be recorded."""
    addresses: tuple[str | None, ...] = ()
    """Values of the variables that name the base URLs of the models."""


def make_parts(inputs: AgentInputs[T]) -> AgentParts[T]:
    """The parts of an agent, with its settings completed; raises `MisuseError` or `BadTool` for bad input."""
    settings, tool_choice = inputs.settings, inputs.tool_choice
    limits = settings.catalogue or ToolCatalogue()
    check_numbers(
        tools_at_once=settings.tools_at_once_max,
        tools_shown_max=limits.shown_max,
        tool_tokens_max=limits.tokens_max,
    )
    check_given(**{name: getattr(inputs, name) for name in CHECKED_INPUTS})
    summarizer = settings.compaction.summarizer if settings.compaction else None
    chain = make_model_chain(inputs.model, inputs.deadlines, summarizer)
    output_type, functions = parse_output(inputs.output)
    own, sources = split_sources(inputs.tools, inputs.sandbox)
    given = confine_tools(collect_tools(own), inputs.sandbox, settings.policy, sources)
    validators = parse_validators(inputs.validate)
    known = add_output_functions(given, functions, validators) if functions else given
    known = inputs.code_mode.add_tool(known, given, inputs) if inputs.code_mode else known
    check_store_location(inputs.store, {**given, **known}, sources)
    has_more = output_type is not None or settings.memory is not None
    fixed = (
        ToolChoice()
        if callable(tool_choice)
        else parse_tool_choice(tool_choice, known, sources, has_more=has_more)
    )
    layout = make_tool_layout(known, limits, inputs.tool_index, fixed, settings.memory, given)
    layout = layout._replace(tools={**given, **layout.tools}) if inputs.code_mode else layout
    taken = {*layout.tools, *(spec.name for spec in (*layout.visible, *layout.hidden_tools))}
    parsed = parse_instructions(inputs.instructions)
    checker = OutputChecker(output_type, validators)
    needs = (
        *list_tool_needs(layout.tools),
        *parsed.context_needs,
        *checker.context_needs,
        *inputs.hooks.context_needs,
    )
    check_context_types(needs, inputs.context_type)
    settings = replace(
        settings,
        instructions=parsed.text,
        instruction_functions=parsed.functions,
        templates=parsed.templates,
        model=chain.models[0],
        models=chain.chain_models,
        tools=layout.visible,
        hidden_tools=layout.hidden_tools,
        catalogue=layout.catalogue,
        tool_choice=fixed,
        thinking=None if callable(inputs.thinking) else check_thinking(inputs.thinking, chain.models),
        sampling=Sampling() if callable(inputs.sampling) else check_sampling(inputs.sampling),
        step_functions=list_step_functions(inputs),
        output=make_output_spec(output_type, chain.models, taken, fixed),
        validators=checker.names,
    )
    settings, private_extras = hide_extras(check_round_trip(label_owners(settings)))
    return AgentParts(
        # The given tools may be an iterator.
        inputs=replace_inputs(inputs, tools=(*given.values(), *sources)),
        settings=check_policy_rules(settings, layout.tools),
        model_chain=chain,
        tool_layout=layout,
        output_type=output_type,
        choose_options=make_step_chooser(inputs, layout.tools, has_more=has_more),
        private_extras=private_extras,
        context_needs=needs,
        instructions=parsed,
        output_checker=checker,
        sources=sources,
        addresses=read_addresses(chain.models),
    )


def read_addresses(models: Sequence[Model]) -> tuple[str | None, ...]:
    """The values, now, of the variables that name base URLs of these models."""
    return tuple(os.environ.get(name) for model in models for name in model.endpoint.base_url_env)


def renew_addresses(parts: AgentParts[T]) -> AgentParts[T]:
    """The parts with the base URLs that the environment has now, which are read when a run starts, as keys are."""
    if read_addresses(parts.model_chain.models) == parts.addresses:
        return parts
    return make_parts(parts.inputs)


def list_step_functions(inputs: AgentInputs[T]) -> tuple[str, ...]:
    return tuple(name for name in STEP_OPTIONS if callable(getattr(inputs, name)))


def make_step_chooser(
    inputs: AgentInputs[T], tools: Collection[str], *, has_more: bool
) -> Callable[[int], StepOptions] | None:
    """A function of the step that collects the options of all step functions; None if there are none."""
    choice, thinking, sampling = inputs.tool_choice, inputs.thinking, inputs.sampling
    if not list_step_functions(inputs):
        return None

    def choose(step: int) -> StepOptions:
        return StepOptions(
            step=step,
            tool_choice=parse_tool_choice(choice(step), tools, has_more=has_more)
            if callable(choice)
            else None,
            thinking=check_chosen("thinking", thinking(step) if callable(thinking) else thinking, Thinking),
            sampling=check_sampling(
                check_chosen("sampling", sampling(step) if callable(sampling) else sampling, Sampling)
            ),
        )

    return choose


def must_stream(settings: Settings) -> bool:
    """True if replies may be so long that an idle connection could be closed before they are complete."""
    return (settings.max_tokens or 0) > OUTPUT_TOKENS_WITHOUT_STREAM_MAX
