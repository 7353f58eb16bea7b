"""Resolves request options that a model would reject.

Providers reject unsupported combinations, one error at a time. The model's abilities say what it accepts, so
each conflict is resolved here, as close to the request as possible, and noted. `REQUEST_RULES` lists the
conflicts, their resolutions and the functions that apply them.
"""

from collections.abc import Callable
from typing import Literal

from msgspec.structs import replace

from bridle.core.recovery.failure_policy import RefusedParameters
from bridle.values.base import Value
from bridle.values.model import Model
from bridle.values.request import Extra, Sampling, Thinking, ToolChoice
from bridle.values.settings import Settings

_THINKING_OFF = "disabled"
THINKING_BUDGET_DEFAULT = 4_096
"""Allowance for a mode that requires one, if none was set."""
NO_SAMPLING, FREE = Sampling(), ToolChoice()


class RequestOptions(Value, kw_only=True):
    """Options of a request besides the conversation."""

    tool_choice: ToolChoice
    thinking: Thinking | None
    sampling: Sampling
    reasoning_missing: bool = False
    """True if the reasoning before the calls just answered is not sent."""
    refused_parameters: RefusedParameters = ()
    """Parameters that the endpoint rejected in this run."""
    notes: tuple[str, ...] = ()
    """Changes for the whole run."""
    extras: tuple[Extra, ...] = ()
    losses: tuple[str, ...] = ()
    """Notes about options that were requested but are not honoured."""
    step_notes: tuple[str, ...] = ()
    """Changes of this request only."""
    equivalents: tuple[str, ...] = ()
    """Notes about another way to get what was requested; nothing is lost."""

    def add_note(self, note: str) -> "RequestOptions":
        return replace(self, notes=(*self.notes, note))

    def add_equivalent(self, note: str) -> "RequestOptions":
        return replace(self, notes=(*self.notes, note), equivalents=(*self.equivalents, note))

    def add_loss(self, note: str) -> "RequestOptions":
        return replace(self, notes=(*self.notes, note), losses=(*self.losses, note))


def apply_model_constraints(
    settings: Settings, choice: ToolChoice, *, unproven: bool = False, left_out: RefusedParameters = ()
) -> RequestOptions:
    options = RequestOptions(
        tool_choice=choice,
        thinking=settings.thinking,
        sampling=settings.sampling,
        reasoning_missing=unproven,
        extras=settings.extras,
        refused_parameters=left_out,
    )
    asks_for_plain_text = settings.thinking is None and settings.output is None and not settings.extras
    if asks_for_plain_text and settings.sampling == NO_SAMPLING and choice == FREE and not left_out:
        return _note_max_tokens(options, settings)  # most requests; no other rule applies to them
    requested: dict[Subject, bool] = {
        "thinking": settings.thinking is not None,
        "sampling": settings.sampling != NO_SAMPLING,
        "max_tokens": settings.max_tokens is not None,
        "extras": bool(settings.extras),
        "left_out": bool(left_out),
        "choice": settings.output is not None or choice != FREE,
    }
    if any(requested.values()):
        for _, _, subject, rule in REQUEST_RULES:
            if requested[subject]:
                options = rule(options, settings)
    return options


def settled_losses(
    settings: Settings, choice: ToolChoice, left_out: RefusedParameters, notes: tuple[str, ...]
) -> tuple[str, ...]:
    """Options requested but not honoured; with `on_adjusted="error"` also those whose values were adjusted.

    `notes` are those of the request. Rules about thinking, sampling and length only adjust values.
    """
    notes = notes if settings.on_adjusted == "error" else ()
    if settings.output is None and choice == FREE and not settings.extras and not left_out and not notes:
        return ()
    options = apply_model_constraints(settings, choice, left_out=left_out)
    changed = (note for note in notes if note not in options.equivalents)
    return tuple(dict.fromkeys((*options.losses, *changed)))


def _force_answer_call(options: RequestOptions, settings: Settings) -> RequestOptions:
    output = settings.output
    if output is None or output.mode != "tool":
        return options
    if why := output.explain_unsupported(settings.model):
        options = options.add_equivalent(f"the answer is asked for by the tool {output.name!r}: {why}")
    if options.tool_choice.mode != "auto":
        return options
    only = len(output.call_names) == 1 and len(settings.tools) == len(output.functions)
    name = output.call_names[0] if only else ""
    forced = ToolChoice(mode="tool" if only else "any", name=name, parallel=options.tool_choice.parallel)
    # Where a call cannot be forced, asking again for it achieves the same.
    can_force = settings.model.abilities.forced_tools and not _is_forcing_blocked(options.thinking, settings)
    if can_force and "tool_choice" in options.refused_parameters:
        note = f"the call that gives the answer is not forced: {_refusal_reason(settings)}"
        return options.add_equivalent(note)
    return replace(options, tool_choice=forced) if can_force else options


def _drop_choice_without_tools(options: RequestOptions, settings: Settings) -> RequestOptions:
    by_call = settings.output is not None and settings.output.mode == "tool"
    if settings.tools or by_call:
        return options
    freed = replace(options, tool_choice=ToolChoice())
    if options.tool_choice.mode not in ("any", "tool"):
        return freed
    return freed.add_loss(
        f"tool choice {_describe_choice(options.tool_choice)} was left out: there are no tools"
    )


def _release_refused_choice(options: RequestOptions, settings: Settings) -> RequestOptions:
    if "tool_choice" not in options.refused_parameters or options.tool_choice.mode not in ("any", "tool"):
        return options
    note = f"tool choice {_describe_choice(options.tool_choice)} became 'auto': {_refusal_reason(settings)}"
    return replace(options, tool_choice=ToolChoice(parallel=options.tool_choice.parallel)).add_loss(note)


def _note_refused_cache(options: RequestOptions, settings: Settings) -> RequestOptions:
    """Add a note only: `assemble_request` omits the cache parameters."""
    if "cache" not in options.refused_parameters:
        return options
    return options.add_loss(f"cache parameters are not sent: {_refusal_reason(settings)}")


def _refusal_reason(settings: Settings) -> str:
    return f"{settings.model.model_key} refused the parameter"


def _release_unforceable_choice(options: RequestOptions, settings: Settings) -> RequestOptions:
    forced = options.tool_choice.mode in ("any", "tool")
    if not forced or settings.model.abilities.forced_tools:
        return options
    note = f"tool choice {_describe_choice(options.tool_choice)} became 'auto': {settings.model.id} cannot be forced"
    return replace(options, tool_choice=ToolChoice(parallel=options.tool_choice.parallel)).add_loss(note)


def _release_choice_while_thinking(options: RequestOptions, settings: Settings) -> RequestOptions:
    if options.tool_choice.mode not in ("any", "tool") or not _is_forcing_blocked(options.thinking, settings):
        return options
    choice = _describe_choice(options.tool_choice)
    note = f"tool choice {choice} became 'auto': not to be forced while {settings.model.id} thinks"
    return replace(options, tool_choice=ToolChoice(parallel=options.tool_choice.parallel)).add_loss(note)


def is_sent_to(owners: tuple[str, ...], model: Model) -> bool:
    """True if something that belongs to these families or endpoints may be sent to the model."""
    return model.endpoint.is_owned_by(owners)


def _drop_foreign_extras(options: RequestOptions, settings: Settings) -> RequestOptions:
    model = settings.model
    for extra in options.extras:
        if not is_sent_to(extra.owners, model):
            kept = tuple(each for each in options.extras if each is not extra)
            note = f"the extra {extra.name!r} is not sent: it belongs to {', '.join(extra.owners)},"
            options = replace(options, extras=kept).add_loss(f"{note} and {model.name} is asked")
    return options


def _fit_thinking_budget(options: RequestOptions, settings: Settings) -> RequestOptions:
    """A token allowance belongs to one mode; without that mode it is dropped."""
    thinking, abilities = options.thinking, settings.model.abilities
    if thinking is None or (thinking.budget_tokens is None and thinking.mode != abilities.allowance_mode):
        return options
    mode = thinking.mode or abilities.allowance_mode
    if thinking.budget_tokens is None:
        return (
            replace(options, thinking=replace(thinking, budget_tokens=THINKING_BUDGET_DEFAULT))
            if mode
            else options
        )
    if mode and mode == abilities.allowance_mode:
        return replace(options, thinking=replace(thinking, mode=mode))
    remaining = replace(thinking, budget_tokens=None)
    note = f"an allowance for thinking was left out: {settings.model.id} decides itself how much it thinks"
    return replace(options, thinking=remaining if remaining != Thinking() else None).add_note(note)


def _clamp_thinking_budget(options: RequestOptions, settings: Settings) -> RequestOptions:
    """An allowance outside the model's range is moved to the nearest accepted value."""
    thinking, abilities = options.thinking, settings.model.abilities
    requested = thinking.budget_tokens if thinking is not None else None
    if thinking is None or requested is None:
        return options
    accepted = max(requested, abilities.allowance_least)
    accepted = accepted if abilities.allowance_most is None else min(accepted, abilities.allowance_most)
    if accepted == requested:
        return options
    limit = f"{settings.model.id} takes no {'less' if accepted > requested else 'more'}"
    note = f"an allowance for thinking of {requested:,} tokens became {accepted:,}: {limit}"
    return replace(options, thinking=replace(thinking, budget_tokens=accepted)).add_note(note)


def _note_max_tokens(options: RequestOptions, settings: Settings) -> RequestOptions:
    requested, accepted = settings.max_tokens, settings.output_tokens_requested
    if requested is None or accepted is None:
        return options
    accepted = min(accepted, settings.window_tokens)
    if accepted == requested:
        return options
    return options.add_note(
        f"max_tokens {requested:,} became {accepted:,}: {settings.model.id} gives no more"
    )


def _limit_stop_sequences(options: RequestOptions, settings: Settings) -> RequestOptions:
    abilities, sequences = settings.model.abilities, options.sampling.stop_sequences
    longest, count_max = abilities.stop_bytes_max, abilities.stop_sequences_max
    short = tuple(word for word in sequences if longest is None or len(word.encode()) <= longest)
    accepted = short if count_max is None else short[:count_max]
    if accepted == sequences:
        return options
    dropped = ", ".join(repr(word) for word in sequences if word not in accepted)
    limits = [
        *(
            [f"no more than {count_max}" if count_max else "none"]
            if count_max is not None and len(sequences) > count_max
            else ()
        ),
        *([f"none longer than {longest} bytes"] if short != sequences else ()),
    ]
    note = f"stop sequences {dropped} left out: {settings.model.id} takes {' and '.join(limits)}"
    return replace(options, sampling=replace(options.sampling, stop_sequences=accepted)).add_note(note)


def _drop_unknown_thinking_mode(options: RequestOptions, settings: Settings) -> RequestOptions:
    thinking, modes = options.thinking, settings.model.abilities.thinking
    if thinking is None or not thinking.mode or thinking.mode in modes:
        return options
    can = f"it knows {', '.join(modes)}" if modes else "it has none"
    remaining = replace(thinking, mode="", budget_tokens=None)
    note = f"thinking mode {thinking.mode!r} was left out: of {settings.model.id}, {can}"
    return replace(options, thinking=remaining if remaining.effort else None).add_note(note)


def _disable_unproven_thinking(options: RequestOptions, settings: Settings) -> RequestOptions:
    """Switch thinking off for one step if the mode needs earlier reasoning of this turn that cannot be sent."""
    thinking, abilities = options.thinking, settings.model.abilities
    if (
        not options.reasoning_missing
        or thinking is None
        or not thinking.mode
        or thinking.mode != abilities.allowance_mode
    ):
        return options
    off = Thinking(mode=_THINKING_OFF) if _THINKING_OFF in abilities.thinking else None
    note = (
        f"thinking was switched off for now: {settings.model.id} cannot go on from reasoning that is not sent"
    )
    return replace(options, thinking=off, step_notes=(*options.step_notes, note))


def _drop_unusable_display(options: RequestOptions, settings: Settings) -> RequestOptions:
    thinking, modes = options.thinking, settings.model.abilities.unshown_modes
    if thinking is None or not thinking.display or thinking.mode not in modes:
        return options
    note = (
        f"display {thinking.display!r} was left out: it cannot be chosen while thinking is {thinking.mode!r}"
    )
    return replace(options, thinking=replace(thinking, display="")).add_note(note)


def _clamp_effort_for_mode(options: RequestOptions, settings: Settings) -> RequestOptions:
    thinking = options.thinking
    limits = dict(settings.model.abilities.mode_efforts)
    if (
        thinking is None
        or not thinking.effort
        or thinking.effort in limits.get(thinking.mode, (thinking.effort,))
    ):
        return options
    highest = limits[thinking.mode][-1:]
    change = f"became {highest[0]!r}" if highest else "was left out"
    limit = f"{settings.model.id} takes no more while thinking is {thinking.mode!r}"
    note = f"effort {thinking.effort!r} {change}: {limit}"
    return replace(options, thinking=replace(thinking, effort="".join(highest))).add_note(note)


def _fit_effort(options: RequestOptions, settings: Settings) -> RequestOptions:
    thinking, abilities = options.thinking, settings.model.abilities
    if thinking is None or not thinking.effort:
        return options
    if not abilities.takes_effort(thinking.effort):
        can = f"takes {', '.join(abilities.efforts)}" if abilities.efforts else "takes none"
        nearest = abilities.nearest_effort(thinking.effort)
        change = f"became {nearest!r}" if nearest else "was left out"
        adjusted = options.add_note(f"effort {thinking.effort!r} {change}: {settings.model.id} {can}")
        remaining = replace(thinking, effort=nearest)
        adjusted = replace(adjusted, thinking=remaining if remaining != Thinking() else None)
        return _fit_effort(adjusted, settings) if nearest else adjusted
    if settings.tools and not abilities.effort_with_tools:
        note = f"effort {thinking.effort!r} was left out: {settings.model.id} takes none beside tools here"
    else:
        return options
    remaining = replace(thinking, effort="")
    return replace(options, thinking=remaining if remaining != Thinking() else None).add_note(note)


def _drop_sampling(options: RequestOptions, settings: Settings) -> RequestOptions:
    sampling = options.sampling
    names = [name for name in ("temperature", "top_p", "top_k") if getattr(sampling, name) is not None]
    if not names or settings.model.abilities.sampling:
        return options
    note = f"{', '.join(names)} left out: {settings.model.id} does not take sampling settings"
    return replace(options, sampling=Sampling(stop_sequences=sampling.stop_sequences)).add_note(note)


def _is_forcing_blocked(thinking: Thinking | None, settings: Settings) -> bool:
    return thinking is not None and thinking.mode in settings.model.abilities.unforced_while


def _describe_choice(choice: ToolChoice) -> str:
    return repr(choice.name or choice.mode)


RequestRule = Callable[[RequestOptions, Settings], RequestOptions]
Subject = Literal["thinking", "sampling", "max_tokens", "extras", "left_out", "choice"]
"""Subject of a rule; the rule is skipped if the request has no option on that subject."""

REQUEST_RULES: tuple[tuple[str, str, Subject, RequestRule], ...] = (
    ("a thinking mode that the model does not have", "omitted", "thinking", _drop_unknown_thinking_mode),
    ("a thinking budget on a model without budgets", "omitted", "thinking", _fit_thinking_budget),
    (
        "a thinking budget in a tool loop that did not start with reasoning",
        "thinking is off until the calls have their results",
        "thinking",
        _disable_unproven_thinking,
    ),
    (
        "a thinking budget that is too small or too large",
        "the nearest accepted value",
        "thinking",
        _clamp_thinking_budget,
    ),
    (
        "an effort that the model does not support",
        "the nearest supported one; omitted if the model supports none together with tools",
        "thinking",
        _fit_effort,
    ),
    (
        "an effort above the maximum of the thinking mode",
        "the maximum",
        "thinking",
        _clamp_effort_for_mode,
    ),
    ("`display` in a thinking mode that shows no reasoning", "omitted", "thinking", _drop_unusable_display),
    ("sampling settings that the model does not support", "omitted", "sampling", _drop_sampling),
    ("`max_tokens` above the limit of the model", "the limit", "max_tokens", _note_max_tokens),
    (
        "more or longer stop sequences than the model accepts",
        "the first ones that fit",
        "sampling",
        _limit_stop_sequences,
    ),
    ("an extra of another provider", "not sent", "extras", _drop_foreign_extras),
    (
        "a forced tool choice that the endpoint rejected in this run",
        "`auto`",
        "left_out",
        _release_refused_choice,
    ),
    ("cache parameters that the endpoint rejected in this run", "not sent", "left_out", _note_refused_cache),
    (
        "structured output through a tool call",
        "a tool call is forced if the model allows it",
        "choice",
        _force_answer_call,
    ),
    ("a tool choice without tools", "omitted", "choice", _drop_choice_without_tools),
    ("a forced tool on a model that cannot be forced", "`auto`", "choice", _release_unforceable_choice),
    ("a forced tool while the model thinks", "`auto`", "choice", _release_choice_while_thinking),
)
