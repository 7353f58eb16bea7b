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
from typing import TYPE_CHECKING, Never, TypedDict, TypeVar, cast

from msgspec.structs import replace

from bridle.core.memory import is_instruction_due
from bridle.core.state import State
from bridle.ports.tool import Json, Tool, ToolSource
from bridle.run.agent_settings import (
    AgentParts,
    SamplingInput,
    ThinkingInput,
    ToolChoiceInput,
    make_parts,
)
from bridle.run.calls.code_mode import is_code_tool
from bridle.run.calls.handover import SessionOptions
from bridle.run.logged_settings import resolve_logged_model, take_logged_instructions
from bridle.run.model_connection import ModelLike
from bridle.run.recovery.session_log import WriteEpoch
from bridle.run.session import Session
from bridle.run.stream import RunControl
from bridle.run.validate_input import check_numbers
from bridle.tools.output_functions import OutputFunction
from bridle.tools.search.search_tools import SearchTools
from bridle.values.errors import MisuseError
from bridle.values.model import Model
from bridle.values.settings import RunOverride, Settings
from bridle.values.usage import Budget

from .instructions import Instructions
from .resources import RunResources

if TYPE_CHECKING:
    from bridle.run.control.gate import EffectGate

T = TypeVar("T")


class RunOptions(TypedDict, total=False):
    """Settings of one run, in place of the agent's own."""

    model: ModelLike | Sequence[ModelLike]
    instructions: Instructions[Never] | None
    tools: Iterable[Tool[Never] | Callable[..., object] | ToolSource]
    """All tools and servers of the run; to add one: `[*agent.tools.values(), extra]`."""
    tool_choice: ToolChoiceInput
    thinking: ThinkingInput
    sampling: SamplingInput
    max_tokens: int | None
    output: Mapping[str, Json] | None
    """JSON Schema of the answer, which is then the text of the result."""


def override_parts(parts: AgentParts[T], options: RunOptions) -> AgentParts[T]:
    """The parts of an agent for a run with these options; raises `TypeError` for an unknown option."""
    for name in options:
        if name not in RunOptions.__annotations__:
            near = get_close_matches(name, RunOptions.__annotations__, n=1)
            hint = f": did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"a run has no option {name!r}{hint}")
    given: RunOptions = {**options}
    if isinstance(options.get("tools"), list | tuple):
        # `agent.tools` contains tools of the harness and the output functions; they are made again if needed.
        made_again = (SearchTools, OutputFunction)
        given["tools"] = [
            tool for tool in options["tools"] if not isinstance(tool, made_again) and not is_code_tool(tool)
        ]
    inputs = {name: value for name, value in given.items() if name != "max_tokens"}
    if "max_tokens" in given:
        check_numbers(max_tokens=given["max_tokens"])
        inputs["settings"] = replace(parts.inputs.settings, max_tokens=given["max_tokens"])
    made = make_parts(replace_parts(parts.inputs, **inputs))  # type: ignore[arg-type]
    overrides = tuple(
        RunOverride(option=name, code=_list_code(name, value, made)) for name, value in sorted(given.items())
    )
    return replace_parts(made, settings=replace(made.settings, overrides=overrides))


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
) -> Session:
    """Open a session whose run is resumed with these options, and with those recorded for it."""

    fence = fence or WriteEpoch()

    def open_with(made: AgentParts[T], restore: Callable[[State], Session] | None = None) -> Session:
        made.model_chain.check_price(budget, resources.pool, resources.clock.now())
        own = SessionOptions(stream=stream, control=control, context=context, fence=fence, gate=gate)
        return resources.open_session(session, made, restore_overrides=restore, **own)

    own = override_parts(parts, options) if options else parts
    return open_with(own, lambda state: open_with(restore_overrides(parts, options, state)))


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
        return None if settings.output is None else json.loads(settings.output.parameters)
    _require_code(override.option, override.code)
    return getattr(settings, override.option)


def _make_external_tools(settings: Settings) -> dict[str, Tool]:
    """The tools of the caller, which need no code; imported only if there are any."""
    external = [spec for spec in settings.all_tools if spec.external]
    if not external:
        return {}
    module = import_module("bridle.tools.external_tool")
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
