"""Options of one run: `agent.run(prompt, model=…, instructions=…, tools=…, tool_choice=…, sampling=…)`, and others.

They replace the agent's own settings until the run ends and are recorded with its settings (`Configured`), so a
resumed run uses them without being given them again.  A log holds no code: tools that the agent itself lacks, and
functions that have still to be called, are given to `resume` again.
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace as replace_parts
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any, Never, TypedDict, TypeVar, cast

from msgspec.structs import replace

from bridle.core.memory import is_instruction_due
from bridle.core.state import State
from bridle.ports.tool import Tool, ToolSource
from bridle.run.agent_settings import (
    AgentParts,
    OutputLike,
    SamplingInput,
    ThinkingInput,
    ToolChoiceInput,
    make_parts,
    parse_output,
)
from bridle.run.calls.code_mode import is_code_tool
from bridle.run.calls.handover import SessionOptions
from bridle.run.logged_settings import resolve_logged_model, take_logged_instructions, take_logged_output
from bridle.run.model_connection import ModelLike
from bridle.run.recovery.session_log import WriteEpoch
from bridle.run.session import Session
from bridle.run.stream import RunControl
from bridle.run.validate_input import check_given, check_numbers
from bridle.tools.output_functions import OutputFunction
from bridle.tools.schema.output_type import OutputType
from bridle.tools.search.search_tools import SearchTools
from bridle.values.errors import MisuseError
from bridle.values.model import Model
from bridle.values.request import Extra
from bridle.values.settings import RunOverride, Settings
from bridle.values.usage import Budget

from .instructions import Instructions
from .resources import RunResources

if TYPE_CHECKING:
    from bridle.run.control.gate import EffectGate

T = TypeVar("T")


class RunSettings(TypedDict, total=False):
    """Settings of one run that do not change the type of its result."""

    model: ModelLike | Sequence[ModelLike]
    instructions: Instructions[Never] | None
    tools: Iterable[Tool[Never] | Callable[..., object] | ToolSource]
    """All tools and servers of the run; to add one: `[*agent.tools.values(), extra]`."""
    tool_choice: ToolChoiceInput
    thinking: ThinkingInput
    sampling: SamplingInput
    max_tokens: int | None
    extras: Sequence[Extra]
    """Fields that only one provider understands, in place of the agent's own."""


class RunOptions(RunSettings, total=False):
    """Settings of one run, in place of the agent's own."""

    output: OutputLike[Any] | None
    """Type of the answer, or its JSON Schema; None for text."""


OPTION_NAMES = (*RunSettings.__annotations__, "output")
SETTINGS_OPTIONS = ("max_tokens", "extras")
"""Options that depend on no other: fields of the agent's settings."""


def override_parts(parts: AgentParts[T], options: RunOptions) -> AgentParts[T]:
    """The parts of an agent for a run with these options; raises `TypeError` for an unknown option."""
    for name in options:
        if name not in OPTION_NAMES:
            near = get_close_matches(name, OPTION_NAMES, n=1)
            hint = f": did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"a run has no option {name!r}{hint}")
    if "output" in options and parts.output_checker.names and options["output"] is not parts.inputs.output:
        raise MisuseError(
            f"`output` of a run cannot replace that of an agent with validators ({parts.output_checker.names[0]}),"
            " which check the agent's own; make another agent"
        )
    given: RunOptions = {**options}
    if isinstance(options.get("tools"), list | tuple):
        # `agent.tools` contains tools of the harness and the output functions; they are made again if needed.
        made_again = (SearchTools, OutputFunction)
        given["tools"] = [
            tool for tool in options["tools"] if not isinstance(tool, made_again) and not is_code_tool(tool)
        ]
    inputs = {name: value for name, value in given.items() if name not in SETTINGS_OPTIONS}
    if changed := {name: value for name, value in given.items() if name in SETTINGS_OPTIONS}:
        check_numbers(max_tokens=given.get("max_tokens"))
        check_given(extras=given.get("extras", ()))
        if "extras" in changed:
            changed["extras"] = tuple(given["extras"])
        inputs["settings"] = replace(parts.inputs.settings, **changed)
    made = make_parts(replace_parts(parts.inputs, **inputs))  # type: ignore[arg-type]
    overrides = tuple(
        RunOverride(option=name, code=_list_code(name, value, made)) for name, value in sorted(given.items())
    )
    return replace_parts(made, settings=replace(made.settings, overrides=overrides))


def find_output_type(
    parts: AgentParts[T], options: RunOptions, state: State | None = None
) -> OutputType[Any] | None:
    """The type of the answer of a run: given for it now, else as recorded for it, else the agent's own."""
    if "output" in options:
        return parse_output(options["output"])[0]
    if state is not None and any(override.option == "output" for override in state.settings.overrides):
        return take_logged_output(state.settings)
    return parts.output_type


def restore_overrides(parts: AgentParts[T], options: RunOptions, state: State) -> AgentParts[T]:
    """The parts of an agent for resuming a run: with the options given now, else those recorded."""
    recorded = {
        override.option: _take_recorded(parts, override, state)
        for override in state.settings.overrides
        if override.option not in options
    }
    return override_parts(parts, cast("RunOptions", {**recorded, **options}))


def open_to_resume(
    resources: RunResources,
    session: str,
    parts: AgentParts[T],
    options: RunOptions,
    budget: Budget | None,
    *,
    stream: bool,
    control: RunControl | None,
    context: object,
    fence: WriteEpoch | None = None,
    gate: "EffectGate | None" = None,
    on_restored: Callable[[AgentParts[T]], None] | None = None,
) -> Session:
    """Open a session whose run is resumed with these options, and with those recorded for it.

    `on_restored` gets the parts of the agent with the recorded options, before the run goes on.
    """

    fence = fence or WriteEpoch()

    def open_with(made: AgentParts[T], restore: Callable[[State], Session] | None = None) -> Session:
        made.model_chain.check_price(budget, resources.pool, resources.clock.now())
        own = SessionOptions(stream=stream, control=control, context=context, fence=fence, gate=gate)
        return resources.open_session(session, made, restore_overrides=restore, **own)

    own = override_parts(parts, options) if options else parts

    def restore(state: State) -> Session:
        made = restore_overrides(parts, options, state)
        if on_restored is not None:
            on_restored(made)
        return open_with(made)

    return open_with(own, restore)


def _list_code(option: str, given: object, made: AgentParts[T]) -> tuple[str, ...]:
    """Names of the tools or functions in an option."""
    if option == "tools":
        own = tuple(made.inputs.tools)[: -len(made.sources) or None]
        return (
            *(tool.spec.name for tool in cast("Iterable[Tool]", own)),
            *(source.prefix for source in made.sources),
        )
    if option == "instructions":
        return tuple(function.name for function in made.instructions.functions)
    if option == "output":
        is_code = given is not None and not isinstance(given, Mapping)
        return (str(getattr(given, "__name__", given)),) if is_code else ()
    is_function = option != "model" and callable(given)
    return (str(getattr(given, "__name__", type(given).__name__)),) if is_function else ()


def _take_recorded(parts: AgentParts[T], override: RunOverride, state: State) -> object:
    """The recorded value of an option; raises `MisuseError` if its code is needed and is not here."""
    settings = state.settings
    if override.option == "model":
        return [_find_recorded_model(parts, model) for model in settings.models or (settings.model,)]
    if override.option == "tools":
        own = {
            **_make_external_tools(settings),
            **parts.tool_layout.tools,
            **{source.prefix: source for source in parts.sources},
        }
        _require_code("tools", [name for name in override.code if name not in own])
        return tuple(own[name] for name in override.code)
    if override.option == "instructions":
        due = [function for function in settings.instruction_functions if is_instruction_due(state, function)]
        _require_code("instructions", [function.name for function in due])
        return take_logged_instructions(settings)
    if override.option == "output":
        _require_code("output", override.code)
        return None if settings.output is None else json.loads(settings.output.parameters)
    if override.option == "extras":
        _require_code("extras", [extra.name for extra in settings.extras if extra.digest])
        return settings.extras
    _require_code(override.option, override.code)
    return getattr(settings, override.option)


def _make_external_tools(settings: Settings) -> dict[str, Tool]:
    """The tools of the caller, which need no code; imported only if there are any."""
    external = [spec for spec in settings.all_tools if spec.external]
    if not external:
        return {}
    module = import_module("bridle.tools.external")
    return {spec.name: module.ExternalTool(spec) for spec in external}


def _require_code(option: str, missing: Sequence[str]) -> None:
    if missing:
        named = ", ".join(missing)
        raise MisuseError(
            f"the run was started with {option}=… ({named}), and a log holds no code;"
            f" pass it again: agent.resume(…, {option}=…)"
        )


def _find_recorded_model(parts: AgentParts[T], recorded: Model) -> ModelLike:
    """A recorded model: the agent's own connection or model, else from the tables of this machine."""
    chain, key = parts.model_chain, recorded.model_key
    own = chain.given_connections.get(key) or next(
        (model for model in chain.models if model.model_key == key), None
    )
    if own is not None:
        return own
    try:
        return resolve_logged_model(recorded, os.environ)
    except MisuseError as error:
        raise MisuseError(
            f"the run was started with model=… ({recorded.name}), which cannot be taken from the log: {error};"
            " pass it again: agent.resume(…, model=…)"
        ) from None
