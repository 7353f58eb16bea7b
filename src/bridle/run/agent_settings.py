"""What an agent may be told besides what it is made of: the settings that most agents leave as they are.

Each is a field of `Settings` of the same name, so it is written into the log as it was given, and a new
one is one line here.  A name that is none of them is refused with the nearest one that is.
"""

import os
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TypedDict, TypeVar, cast

import msgspec
from msgspec.structs import replace

from bridle.core.calls.permission import find_blind_rule, find_dead_rule
from bridle.ports.tool import HidesDefaults, Json, Tool
from bridle.providers import load_codec
from bridle.providers.ownership import find_field_owners, find_tool_owners
from bridle.tools.schema.output_type import OutputType, make_output_type
from bridle.values.cache import ServerStateStrategy
from bridle.values.calls import Policy
from bridle.values.errors import MisuseError
from bridle.values.memory import Memory
from bridle.values.model import Model
from bridle.values.request import OutputSpec, Thinking, ToolChoice, ToolSpec
from bridle.values.settings import (
    CacheBy,
    CacheTtl,
    Compaction,
    OnAdjusted,
    OnTruncation,
    PrefixRule,
    Settings,
)

from .model_connection import resolve_model
from .validate_input import check_numbers


class AgentOptions(TypedDict, total=False):
    """Settings an agent is given by name."""

    name: str
    """What the agent is called in sums over sessions, and in what providers keep its prompts under."""
    max_tokens: int | None
    """The most tokens of one reply."""
    thinking: Thinking | None
    repeats_max: int | None
    """How often one call may bring the same result before the run ends; None for never."""
    attempts_max: int
    """Requests for one reply, to one model."""
    approval_seconds: float | None
    """How long a question to a person stays open; None for as long as it takes."""
    result_characters: int | None
    """Of a longer tool result the model gets an excerpt and a way to read the rest; None for all of it."""
    reply_calls_max: int | None
    """The most tool calls in one reply; one with more ends the run and none of them is run; None for any."""
    reply_bytes_max: int | None
    """The most bytes of one reply on the wire; a longer one is given up and not asked for again."""
    chain: ServerStateStrategy
    """Let a provider that can keep the conversation, so that only what is new is sent: True refers to the
    reply before, `"conversation"` uses a conversation object."""
    cache_ttl: CacheTtl
    """How long prompts are to be kept at least, where a provider lets one say; `auto` goes by the pauses."""
    cache_by: CacheBy
    """Where keys are taken: `agent` lets tenants read what they share, `tenant` keeps them apart."""
    cache_shards: int
    """One for every fifteen calls a minute that a tenant's sessions make together, where keys are taken."""
    cache_by_name: bool
    """Let a provider that sells storage keep tools and instructions by name, where that pays."""
    prefix: PrefixRule
    """`strict` ends a run before a prompt whose beginning has changed is paid for anew."""
    compaction: Compaction | None
    """When a conversation is made shorter, how far and by whom; None for never."""
    context_tokens: int | None
    """The window, where it is not what the model's table says."""
    memory: Memory | None
    """Notes in front of every conversation, kept per tenant and per session; None for an agent without."""
    on_adjusted: OnAdjusted
    """`event` records that a tool choice, an extra or a hosted tool was not sent, because the model or its
    provider does not take it; `error` ends the run."""
    on_truncation: OnTruncation
    """What a prompt is that a server seems not to have read whole: event or error."""


NUMBER_OPTIONS = (
    "cache_shards", "max_tokens", "repeats_max", "attempts_max", "result_characters", "context_tokens",
    "reply_calls_max", "reply_bytes_max",
)  # fmt: skip


def check_options(given: Mapping[str, object], taker: Callable[..., None]) -> None:
    """`taker` is what was called with them: it has parameters of its own, which may have been meant."""
    for name in given:
        if name not in AgentOptions.__annotations__:
            others = (other for other in taker.__annotations__ if other not in ("options", "return"))
            near = get_close_matches(name, (*AgentOptions.__annotations__, *others), n=1)
            hint = f": did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"an agent has no setting {name!r}{hint}")
    memory = given.get("memory")
    if memory is not None and not isinstance(memory, Memory):
        raise MisuseError(f"memory is a Memory(), or None; not {memory!r}")
    check_numbers(characters_max=memory.characters_max if memory is not None else None)
    check_numbers(**{name: given[name] for name in NUMBER_OPTIONS if name in given})


def resolve_summarizer(given: AgentOptions) -> AgentOptions:
    """The same with the model that writes summaries looked up, and its shares in order."""
    wish = given.get("compaction")
    if wish is None:
        return given
    if not isinstance(wish, Compaction):
        raise MisuseError(f"compaction is a Compaction(at=…, to=…) or None, not {wish!r}")
    if not 0 < wish.to < wish.at <= 1 or not 0 <= wish.keep < wish.to or wish.pictures < 0:
        raise MisuseError(f"a compaction has 0 <= keep < to < at <= 1 and pictures >= 0; not {wish!r}")
    return {**given, "compaction": replace(wish, model=resolve_model(wish.model))} if wish.model else given


# Which tool is to be called, in the words a user has for it.


ToolChoiceLike = str | ToolChoice
ToolChoiceInput = ToolChoiceLike | Callable[[int], ToolChoiceLike]
"""`auto`, `any`, `none`, the name of a tool, or a function of the step number that gives one of these."""
TOOL_CHOICES = {"auto": ToolChoice(), "any": ToolChoice(mode="any"), "none": ToolChoice(mode="none")}
TOOLS_NAMED_MAX = 30


def parse_tool_choice(wanted: ToolChoiceLike, tools: Collection[str]) -> ToolChoice:
    if isinstance(wanted, ToolChoice):
        choice = wanted
    else:
        choice = TOOL_CHOICES.get(wanted) or ToolChoice(mode="tool", name=wanted)
    if choice.mode == "tool" and choice.name not in tools:
        known = ", ".join(list(tools)[:TOOLS_NAMED_MAX]) or "none are registered"
        more = f" and {len(tools) - TOOLS_NAMED_MAX} more" if len(tools) > TOOLS_NAMED_MAX else ""
        raise MisuseError(
            f"tool_choice names {choice.name!r}, which is not a tool of this agent ({known}{more})"
        )
    return choice


# The shape of an answer: what a user asks for, and how this model is asked for it.


T = TypeVar("T")


def parse_output(output: type[T] | OutputType[T] | Mapping[str, Json] | None) -> OutputType[T] | None:
    if output is None or isinstance(output, OutputType):
        return output
    # A schema gives plain data; who passes one has no type to be held to.
    return cast("OutputType[T]", make_output_type(output))


def make_output_spec(
    shape: OutputType[T] | None, models: Sequence[Model], tools: Collection[str], choice: ToolChoice
) -> OutputSpec | None:
    """How the first of the models is asked; all of them are looked at, since any may be asked later."""
    if shape is None:
        return None
    spec = OutputSpec(name=shape.name, parameters=shape.schema, description=shape.description)
    native = [model for model in models if model.abilities.structured_output == "native"]
    reasons = [
        (model.model_key, load_codec(model.endpoint.family).explain_unsupported_output(spec, model))
        for model in native
    ]
    spec = replace(spec, unsupported_models=tuple((seat, why) for seat, why in reasons if why))
    calling = [model.name for model in models if spec.mode_for(model) == "tool"]
    if calling and shape.name in tools:
        raise MisuseError(f"the answer's type and a tool are both called {shape.name!r}; rename one")
    if calling and choice.mode == "none":
        raise MisuseError(f"{calling[0]} answers in a shape by calling, and tool_choice='none' forbids calls")
    return replace(spec, mode=spec.mode_for(models[0]))


# Label extras and hosted tools with the wire family they belong to, before a chain of models sees them.


def label_owners(settings: Settings) -> Settings:
    """The settings with an owner on every extra and hosted tool; what the caller has labelled stays."""
    first = settings.model.endpoint
    specs = (*settings.tools, *settings.hidden_tools)
    if not settings.extras and all(spec.native is None for spec in specs):
        return settings

    def labelled(spec: ToolSpec) -> ToolSpec:
        if spec.native is None or spec.native_to:
            return spec
        return replace(spec, native_to=find_tool_owners(spec.native, first))

    extras = tuple(
        extra if extra.owners else replace(extra, owners=find_field_owners(extra.name, first))
        for extra in settings.extras
    )
    return replace(
        settings,
        extras=extras,
        tools=tuple(map(labelled, settings.tools)),
        hidden_tools=tuple(map(labelled, settings.hidden_tools)),
    )


# A policy from a TOML file, and the check of its rules against the tools of an agent.


def read_policy(path: str | os.PathLike[str]) -> Policy:
    """Raises `MisuseError` with one line about what is wrong: a rule that is not read protects nobody."""
    try:
        given = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        return msgspec.convert(given, Policy)
    except OSError as error:
        raise MisuseError(
            f"the policy {os.fspath(path)!r} cannot be read: {error.strerror or error}"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise MisuseError(f"the policy {os.fspath(path)!r} is not one: {error}") from None


def load_policy(given: Policy | str | os.PathLike[str] | None) -> Policy:
    if isinstance(given, Policy):
        return given
    return read_policy(given) if given else Policy()


def check_policy_rules(settings: Settings, tools: Mapping[str, Tool]) -> Settings:
    """The same settings; raises `MisuseError` for a rule that can never match or sees nothing."""
    unseen = {name: tool.unseen_defaults for name, tool in tools.items() if isinstance(tool, HidesDefaults)}
    fault = find_dead_rule(settings.policy, settings.all_tools) or find_blind_rule(
        settings.policy, settings.all_tools, unseen
    )
    if fault:
        raise MisuseError(fault)
    return settings
