"""What a model would refuse, settled before it is sent.

Providers answer a combination they do not take with an error, and the errors come one at
a time.  What this model takes is known from its abilities, so each conflict is resolved
here, as close to the wish as it gets, and noted in words.  `RULES` can be printed: one
line a conflict, what is done about it, and the function that does it.
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
"""For a mode that has to have an allowance when nobody named one."""
NO_SAMPLING, FREE = Sampling(), ToolChoice()


class RequestOptions(Value):
    """What is asked of a model besides the conversation itself."""

    tool_choice: ToolChoice
    thinking: Thinking | None
    sampling: Sampling
    reasoning_missing: bool = False
    """The reasoning that led to the calls just answered is not sent."""
    refused_parameters: RefusedParameters = ()
    """What the endpoint has refused in this run."""
    notes: tuple[str, ...] = ()
    """Changes that hold for the whole run."""
    extras: tuple[Extra, ...] = ()
    losses: tuple[str, ...] = ()
    """Those of the notes by which something that was asked for is not done."""
    step_notes: tuple[str, ...] = ()
    """Changes of this request alone."""

    def add_note(self, note: str) -> "RequestOptions":
        return replace(self, notes=(*self.notes, note))

    def add_loss(self, note: str) -> "RequestOptions":
        return replace(self, notes=(*self.notes, note), losses=(*self.losses, note))


def apply_model_constraints(
    settings: Settings, choice: ToolChoice, *, unproven: bool = False, left_out: RefusedParameters = ()
) -> RequestOptions:
    wish = RequestOptions(
        tool_choice=choice,
        thinking=settings.thinking,
        sampling=settings.sampling,
        reasoning_missing=unproven,
        extras=settings.extras,
        refused_parameters=left_out,
    )
    asked: dict[Subject, bool] = {
        "thinking": settings.thinking is not None,
        "sampling": settings.sampling != NO_SAMPLING,
        "max_tokens": settings.max_tokens is not None,
        "extras": bool(settings.extras),
        "left_out": bool(left_out),
        "choice": settings.output is not None or choice != FREE,
    }
    for _, _, subject, rule in REQUEST_RULES:
        if asked[subject]:
            wish = rule(wish, settings)
    return wish


def settled_losses(settings: Settings, choice: ToolChoice, left_out: RefusedParameters) -> tuple[str, ...]:
    """What is asked for and not done.  No rule about thinking, sampling or length gives up what was asked."""
    if settings.output is None and choice == FREE and not settings.extras and not left_out:
        return ()
    return apply_model_constraints(settings, choice, left_out=left_out).losses


def _force_answer_call(wish: RequestOptions, settings: Settings) -> RequestOptions:
    output = settings.output
    if output is None or output.mode != "tool":
        return wish
    if why := output.explain_unsupported(settings.model):
        wish = wish.add_note(f"the answer is asked for by the tool {output.name!r}: {why}")
    if wish.tool_choice.mode != "auto":
        return wish
    only = not settings.tools
    name = output.name if only else ""
    forced = ToolChoice(mode="tool" if only else "any", name=name, parallel=wish.tool_choice.parallel)
    # Where it cannot be forced, asking again for the call does: nothing anybody wished for is lost.
    able = settings.model.abilities.forced_tools and not _is_forcing_blocked(wish.thinking, settings)
    if able and "tool_choice" in wish.refused_parameters:
        return wish.add_note(f"the call that gives the answer is not forced: {_refusal_reason(settings)}")
    return replace(wish, tool_choice=forced) if able else wish


def _drop_choice_without_tools(wish: RequestOptions, settings: Settings) -> RequestOptions:
    by_call = settings.output is not None and settings.output.mode == "tool"
    return wish if settings.tools or by_call else replace(wish, tool_choice=ToolChoice())


def _release_refused_choice(wish: RequestOptions, settings: Settings) -> RequestOptions:
    if "tool_choice" not in wish.refused_parameters or wish.tool_choice.mode not in ("any", "tool"):
        return wish
    note = f"tool choice {_describe_choice(wish.tool_choice)} became 'auto': {_refusal_reason(settings)}"
    return replace(wish, tool_choice=ToolChoice(parallel=wish.tool_choice.parallel)).add_loss(note)


def _note_refused_cache(wish: RequestOptions, settings: Settings) -> RequestOptions:
    """A note only: cache parameters are no part of a wish, and `assemble` leaves them out."""
    if "cache" not in wish.refused_parameters:
        return wish
    return wish.add_loss(f"cache parameters are not sent: {_refusal_reason(settings)}")


def _refusal_reason(settings: Settings) -> str:
    return f"{settings.model.model_key} refused the parameter"


def _release_unforceable_choice(wish: RequestOptions, settings: Settings) -> RequestOptions:
    forced = wish.tool_choice.mode in ("any", "tool")
    if not forced or settings.model.abilities.forced_tools:
        return wish
    note = f"tool choice {_describe_choice(wish.tool_choice)} became 'auto': {settings.model.id} cannot be forced"
    return replace(wish, tool_choice=ToolChoice(parallel=wish.tool_choice.parallel)).add_loss(note)


def _release_choice_while_thinking(wish: RequestOptions, settings: Settings) -> RequestOptions:
    if wish.tool_choice.mode not in ("any", "tool") or not _is_forcing_blocked(wish.thinking, settings):
        return wish
    choice = _describe_choice(wish.tool_choice)
    note = f"tool choice {choice} became 'auto': not to be forced while {settings.model.id} thinks"
    return replace(wish, tool_choice=ToolChoice(parallel=wish.tool_choice.parallel)).add_loss(note)


def is_sent_to(owners: tuple[str, ...], model: Model) -> bool:
    """Whether something that belongs to these families or endpoints may be sent to a model."""
    endpoint = model.endpoint
    return not owners or endpoint.family in owners or endpoint.name in owners


def _drop_foreign_extras(wish: RequestOptions, settings: Settings) -> RequestOptions:
    model = settings.model
    for extra in wish.extras:
        if not is_sent_to(extra.owners, model):
            kept = tuple(each for each in wish.extras if each is not extra)
            note = f"the extra {extra.name!r} is not sent: it belongs to {', '.join(extra.owners)},"
            wish = replace(wish, extras=kept).add_loss(f"{note} and {model.name} is asked")
    return wish


def _fit_thinking_budget(wish: RequestOptions, settings: Settings) -> RequestOptions:
    """An allowance of tokens belongs to one mode; where that is not to be had, the allowance goes."""
    thinking, abilities = wish.thinking, settings.model.abilities
    if thinking is None or (thinking.budget_tokens is None and thinking.mode != abilities.allowance_mode):
        return wish
    mode = thinking.mode or abilities.allowance_mode
    if thinking.budget_tokens is None:
        return (
            replace(wish, thinking=replace(thinking, budget_tokens=THINKING_BUDGET_DEFAULT)) if mode else wish
        )
    if mode and mode == abilities.allowance_mode:
        return replace(wish, thinking=replace(thinking, mode=mode))
    left = replace(thinking, budget_tokens=None)
    note = f"an allowance for thinking was left out: {settings.model.id} decides itself how much it thinks"
    return replace(wish, thinking=left if left != Thinking() else None).add_note(note)


def _clamp_thinking_budget(wish: RequestOptions, settings: Settings) -> RequestOptions:
    """An allowance that is out of the model's range becomes the nearest one that is in it."""
    thinking, abilities = wish.thinking, settings.model.abilities
    wanted = thinking.budget_tokens if thinking is not None else None
    if thinking is None or wanted is None:
        return wish
    taken = max(wanted, abilities.allowance_least)
    taken = taken if abilities.allowance_most is None else min(taken, abilities.allowance_most)
    if taken == wanted:
        return wish
    limit = f"{settings.model.id} takes no {'less' if taken > wanted else 'more'}"
    note = f"an allowance for thinking of {wanted:,} tokens became {taken:,}: {limit}"
    return replace(wish, thinking=replace(thinking, budget_tokens=taken)).add_note(note)


def requested_output_tokens(settings: Settings) -> int | None:
    """The most output tokens that the settings ask for and the model gives; None when they do not say."""
    wanted, abilities = settings.max_tokens, settings.model.abilities
    too_many = wanted is not None and wanted > abilities.output_tokens and abilities.output_limited
    return abilities.output_tokens if too_many else wanted


def _note_max_tokens(wish: RequestOptions, settings: Settings) -> RequestOptions:
    wanted, taken = settings.max_tokens, requested_output_tokens(settings)
    if wanted is None or taken == wanted:
        return wish
    return wish.add_note(f"max_tokens {wanted:,} became {taken:,}: {settings.model.id} gives no more")


def _limit_stop_sequences(wish: RequestOptions, settings: Settings) -> RequestOptions:
    abilities, words = settings.model.abilities, wish.sampling.stop_sequences
    longest, most = abilities.stop_bytes_max, abilities.stop_sequences_max
    short = tuple(word for word in words if longest is None or len(word.encode()) <= longest)
    taken = short if most is None else short[:most]
    if taken == words:
        return wish
    left = ", ".join(repr(word) for word in words if word not in taken)
    limits = [
        *([f"no more than {most}" if most else "none"] if most is not None and len(words) > most else ()),
        *([f"none longer than {longest} bytes"] if short != words else ()),
    ]
    note = f"stop sequences {left} left out: {settings.model.id} takes {' and '.join(limits)}"
    return replace(wish, sampling=replace(wish.sampling, stop_sequences=taken)).add_note(note)


def _drop_unknown_thinking_mode(wish: RequestOptions, settings: Settings) -> RequestOptions:
    thinking, modes = wish.thinking, settings.model.abilities.thinking
    if thinking is None or not thinking.mode or thinking.mode in modes:
        return wish
    can = f"it knows {', '.join(modes)}" if modes else "it has none"
    left = replace(thinking, mode="", budget_tokens=None)
    note = f"thinking mode {thinking.mode!r} was left out: of {settings.model.id}, {can}"
    return replace(wish, thinking=left if left.effort else None).add_note(note)


def _disable_unproven_thinking(wish: RequestOptions, settings: Settings) -> RequestOptions:
    """A mode with an allowance demands that a turn with calls opens with the reasoning that led to them."""
    thinking, abilities = wish.thinking, settings.model.abilities
    if (
        not wish.reasoning_missing
        or thinking is None
        or not thinking.mode
        or thinking.mode != abilities.allowance_mode
    ):
        return wish
    off = Thinking(mode=_THINKING_OFF) if _THINKING_OFF in abilities.thinking else None
    note = (
        f"thinking was switched off for now: {settings.model.id} cannot go on from reasoning that is not sent"
    )
    return replace(wish, thinking=off, step_notes=(*wish.step_notes, note))


def _drop_unusable_display(wish: RequestOptions, settings: Settings) -> RequestOptions:
    thinking, modes = wish.thinking, settings.model.abilities.unshown_modes
    if thinking is None or not thinking.display or thinking.mode not in modes:
        return wish
    note = (
        f"display {thinking.display!r} was left out: it cannot be chosen while thinking is {thinking.mode!r}"
    )
    return replace(wish, thinking=replace(thinking, display="")).add_note(note)


def _clamp_effort_for_mode(wish: RequestOptions, settings: Settings) -> RequestOptions:
    thinking = wish.thinking
    limits = dict(settings.model.abilities.mode_efforts)
    if (
        thinking is None
        or not thinking.effort
        or thinking.effort in limits.get(thinking.mode, (thinking.effort,))
    ):
        return wish
    most = limits[thinking.mode][-1:]
    done = f"became {most[0]!r}" if most else "was left out"
    limit = f"{settings.model.id} takes no more while thinking is {thinking.mode!r}"
    note = f"effort {thinking.effort!r} {done}: {limit}"
    return replace(wish, thinking=replace(thinking, effort="".join(most))).add_note(note)


def _fit_effort(wish: RequestOptions, settings: Settings) -> RequestOptions:
    thinking, abilities = wish.thinking, settings.model.abilities
    if thinking is None or not thinking.effort:
        return wish
    if not abilities.takes_effort(thinking.effort):
        can = f"takes {', '.join(abilities.efforts)}" if abilities.efforts else "takes none"
        nearest = abilities.nearest_effort(thinking.effort)
        done = f"became {nearest!r}" if nearest else "was left out"
        near = wish.add_note(f"effort {thinking.effort!r} {done}: {settings.model.id} {can}")
        left = replace(thinking, effort=nearest)
        near = replace(near, thinking=left if left != Thinking() else None)
        return _fit_effort(near, settings) if nearest else near
    if settings.tools and not abilities.effort_with_tools:
        note = f"effort {thinking.effort!r} was left out: {settings.model.id} takes none beside tools here"
    else:
        return wish
    left = replace(thinking, effort="")
    return replace(wish, thinking=left if left != Thinking() else None).add_note(note)


def _drop_sampling(wish: RequestOptions, settings: Settings) -> RequestOptions:
    sampling = wish.sampling
    given = [name for name in ("temperature", "top_p", "top_k") if getattr(sampling, name) is not None]
    if not given or settings.model.abilities.sampling:
        return wish
    note = f"{', '.join(given)} left out: {settings.model.id} does not take sampling settings"
    return replace(wish, sampling=Sampling(stop_sequences=sampling.stop_sequences)).add_note(note)


def _is_forcing_blocked(thinking: Thinking | None, settings: Settings) -> bool:
    return thinking is not None and thinking.mode in settings.model.abilities.unforced_while


def _describe_choice(choice: ToolChoice) -> str:
    return repr(choice.name or choice.mode)


RequestRule = Callable[[RequestOptions, Settings], RequestOptions]
Subject = Literal["thinking", "sampling", "max_tokens", "extras", "left_out", "choice"]
"""What a rule is about; where nothing is asked for about it, the rule is not looked at."""

REQUEST_RULES: tuple[tuple[str, str, Subject, RequestRule], ...] = (
    ("a thinking mode the model does not have", "left out", "thinking", _drop_unknown_thinking_mode),
    ("an allowance for thinking the model does not take", "left out", "thinking", _fit_thinking_budget),
    (
        "thinking with an allowance where a tool loop does not open with reasoning",
        "off until the calls are dealt with",
        "thinking",
        _disable_unproven_thinking,
    ),
    (
        "an allowance for thinking that is too small or too large",
        "the nearest",
        "thinking",
        _clamp_thinking_budget,
    ),
    (
        "an effort the model does not take",
        "the nearest; left out where it takes none beside tools",
        "thinking",
        _fit_effort,
    ),
    (
        "an effort beyond what the thinking mode takes",
        "the most it takes",
        "thinking",
        _clamp_effort_for_mode,
    ),
    ("a display in a thinking mode that shows nothing", "left out", "thinking", _drop_unusable_display),
    ("sampling settings the model does not take", "left out", "sampling", _drop_sampling),
    ("more output tokens than the model gives", "as many as it gives", "max_tokens", _note_max_tokens),
    (
        "more or longer stop sequences than the model takes",
        "the first ones that fit",
        "sampling",
        _limit_stop_sequences,
    ),
    ("an extra of another provider", "not sent", "extras", _drop_foreign_extras),
    (
        "a forced tool choice that the endpoint refused in this run",
        "`auto`",
        "left_out",
        _release_refused_choice,
    ),
    ("cache parameters that the endpoint refused in this run", "not sent", "left_out", _note_refused_cache),
    (
        "an answer that has to come as a call",
        "some call is forced where it can be",
        "choice",
        _force_answer_call,
    ),
    ("a tool choice without tools", "left out", "choice", _drop_choice_without_tools),
    ("a forced tool on a model that cannot be forced", "`auto`", "choice", _release_unforceable_choice),
    ("a forced tool while the model thinks", "`auto`", "choice", _release_choice_while_thinking),
)
