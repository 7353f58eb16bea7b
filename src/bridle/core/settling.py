"""What a model would refuse, settled before it is sent.

Providers answer a combination they do not take with an error, and the errors come one at
a time.  What this model takes is known from its abilities, so each conflict is resolved
here, as close to the wish as it gets, and noted in words.  `RULES` can be printed: one
line a conflict, what is done about it, and the function that does it.
"""

from collections.abc import Callable
from typing import Literal

from msgspec.structs import replace

from ..values.model import Model
from ..values.request import Extra, Sampling, Thinking, ToolChoice
from ..values.settings import Settings
from ..values.value import Value
from .refused_parameters import Parameters

_OFF = "disabled"
ALLOWANCE_DEFAULT = 4_096
"""For a mode that has to have an allowance when nobody named one."""
NO_SAMPLING, FREE = Sampling(), ToolChoice()


class Wish(Value):
    """What is asked of a model besides the conversation itself."""

    choice: ToolChoice
    thinking: Thinking | None
    sampling: Sampling
    unproven: bool = False
    """The reasoning that led to the calls just answered is not sent."""
    left_out: Parameters = ()
    """What the endpoint has refused in this run."""
    notes: tuple[str, ...] = ()
    """Changes that hold for the whole run."""
    extras: tuple[Extra, ...] = ()
    losses: tuple[str, ...] = ()
    """Those of the notes by which something that was asked for is not done."""
    step_notes: tuple[str, ...] = ()
    """Changes of this request alone."""

    def noted(self, note: str) -> "Wish":
        return replace(self, notes=(*self.notes, note))

    def lost(self, note: str) -> "Wish":
        return replace(self, notes=(*self.notes, note), losses=(*self.losses, note))


def settle(
    settings: Settings, choice: ToolChoice, *, unproven: bool = False, left_out: Parameters = ()
) -> Wish:
    wish = Wish(
        choice=choice,
        thinking=settings.thinking,
        sampling=settings.sampling,
        unproven=unproven,
        extras=settings.extras,
        left_out=left_out,
    )
    asked: dict[Subject, bool] = {
        "thinking": settings.thinking is not None,
        "sampling": settings.sampling != NO_SAMPLING,
        "max_tokens": settings.max_tokens is not None,
        "extras": bool(settings.extras),
        "left_out": bool(left_out),
        "choice": settings.output is not None or choice != FREE,
    }
    for _, _, subject, rule in RULES:
        if asked[subject]:
            wish = rule(wish, settings)
    return wish


def settled_losses(settings: Settings, choice: ToolChoice, left_out: Parameters) -> tuple[str, ...]:
    """What is asked for and not done.  No rule about thinking, sampling or length gives up what was asked."""
    if settings.output is None and choice == FREE and not settings.extras and not left_out:
        return ()
    return settle(settings, choice, left_out=left_out).losses


def _answer_by_call(wish: Wish, settings: Settings) -> Wish:
    output = settings.output
    if output is None or output.mode != "tool":
        return wish
    if why := output.reason_unfit(settings.model):
        wish = wish.noted(f"the answer is asked for by the tool {output.name!r}: {why}")
    if wish.choice.mode != "auto":
        return wish
    only = not settings.tools
    name = output.name if only else ""
    forced = ToolChoice(mode="tool" if only else "any", name=name, parallel=wish.choice.parallel)
    # Where it cannot be forced, asking again for the call does: nothing anybody wished for is lost.
    able = settings.model.abilities.forced_tools and not _clashes(wish.thinking, settings)
    if able and "tool_choice" in wish.left_out:
        return wish.noted(f"the call that gives the answer is not forced: {_refuser(settings)}")
    return replace(wish, choice=forced) if able else wish


def _no_tools(wish: Wish, settings: Settings) -> Wish:
    by_call = settings.output is not None and settings.output.mode == "tool"
    return wish if settings.tools or by_call else replace(wish, choice=ToolChoice())


def _refused_choice(wish: Wish, settings: Settings) -> Wish:
    if "tool_choice" not in wish.left_out or wish.choice.mode not in ("any", "tool"):
        return wish
    note = f"tool choice {_called(wish.choice)} became 'auto': {_refuser(settings)}"
    return replace(wish, choice=ToolChoice(parallel=wish.choice.parallel)).lost(note)


def _refused_cache(wish: Wish, settings: Settings) -> Wish:
    """A note only: cache parameters are no part of a wish, and `assemble` leaves them out."""
    if "cache" not in wish.left_out:
        return wish
    return wish.lost(f"cache parameters are not sent: {_refuser(settings)}")


def _refuser(settings: Settings) -> str:
    return f"{settings.model.seat} refused the parameter"


def _unforced(wish: Wish, settings: Settings) -> Wish:
    forced = wish.choice.mode in ("any", "tool")
    if not forced or settings.model.abilities.forced_tools:
        return wish
    note = f"tool choice {_called(wish.choice)} became 'auto': {settings.model.id} cannot be forced"
    return replace(wish, choice=ToolChoice(parallel=wish.choice.parallel)).lost(note)


def _unforced_while_thinking(wish: Wish, settings: Settings) -> Wish:
    if wish.choice.mode not in ("any", "tool") or not _clashes(wish.thinking, settings):
        return wish
    note = (
        f"tool choice {_called(wish.choice)} became 'auto': not to be forced while {settings.model.id} thinks"
    )
    return replace(wish, choice=ToolChoice(parallel=wish.choice.parallel)).lost(note)


def is_taken(owners: tuple[str, ...], model: Model) -> bool:
    """Whether something that belongs to these families or endpoints may be sent to a model."""
    endpoint = model.endpoint
    return not owners or endpoint.family in owners or endpoint.name in owners


def _foreign_extras(wish: Wish, settings: Settings) -> Wish:
    model = settings.model
    for extra in wish.extras:
        if not is_taken(extra.to, model):
            kept = tuple(each for each in wish.extras if each is not extra)
            note = f"the extra {extra.name!r} is not sent: it belongs to {', '.join(extra.to)},"
            wish = replace(wish, extras=kept).lost(f"{note} and {model.name} is asked")
    return wish


def _allowance(wish: Wish, settings: Settings) -> Wish:
    """An allowance of tokens belongs to one mode; where that is not to be had, the allowance goes."""
    thinking, abilities = wish.thinking, settings.model.abilities
    if thinking is None or (thinking.budget_tokens is None and thinking.mode != abilities.allowance_mode):
        return wish
    mode = thinking.mode or abilities.allowance_mode
    if thinking.budget_tokens is None:
        return replace(wish, thinking=replace(thinking, budget_tokens=ALLOWANCE_DEFAULT)) if mode else wish
    if mode and mode == abilities.allowance_mode:
        return replace(wish, thinking=replace(thinking, mode=mode))
    left = replace(thinking, budget_tokens=None)
    note = f"an allowance for thinking was left out: {settings.model.id} decides itself how much it thinks"
    return replace(wish, thinking=left if left != Thinking() else None).noted(note)


def _allowance_size(wish: Wish, settings: Settings) -> Wish:
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
    return replace(wish, thinking=replace(thinking, budget_tokens=taken)).noted(note)


def output_tokens_wanted(settings: Settings) -> int | None:
    """The most output tokens that the settings ask for and the model gives; None when they do not say."""
    wanted, abilities = settings.max_tokens, settings.model.abilities
    too_many = wanted is not None and wanted > abilities.output_tokens and abilities.output_limited
    return abilities.output_tokens if too_many else wanted


def _max_tokens(wish: Wish, settings: Settings) -> Wish:
    wanted, taken = settings.max_tokens, output_tokens_wanted(settings)
    if wanted is None or taken == wanted:
        return wish
    return wish.noted(f"max_tokens {wanted:,} became {taken:,}: {settings.model.id} gives no more")


def _stop_sequences(wish: Wish, settings: Settings) -> Wish:
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
    return replace(wish, sampling=replace(wish.sampling, stop_sequences=taken)).noted(note)


def _thinking_mode(wish: Wish, settings: Settings) -> Wish:
    thinking, modes = wish.thinking, settings.model.abilities.thinking
    if thinking is None or not thinking.mode or thinking.mode in modes:
        return wish
    can = f"it knows {', '.join(modes)}" if modes else "it has none"
    left = replace(thinking, mode="", budget_tokens=None)
    note = f"thinking mode {thinking.mode!r} was left out: of {settings.model.id}, {can}"
    return replace(wish, thinking=left if left.effort else None).noted(note)


def _unproven(wish: Wish, settings: Settings) -> Wish:
    """A mode with an allowance demands that a turn with calls opens with the reasoning that led to them."""
    thinking, abilities = wish.thinking, settings.model.abilities
    if (
        not wish.unproven
        or thinking is None
        or not thinking.mode
        or thinking.mode != abilities.allowance_mode
    ):
        return wish
    off = Thinking(mode=_OFF) if _OFF in abilities.thinking else None
    note = (
        f"thinking was switched off for now: {settings.model.id} cannot go on from reasoning that is not sent"
    )
    return replace(wish, thinking=off, step_notes=(*wish.step_notes, note))


def _unshown(wish: Wish, settings: Settings) -> Wish:
    thinking, modes = wish.thinking, settings.model.abilities.unshown_modes
    if thinking is None or not thinking.display or thinking.mode not in modes:
        return wish
    note = (
        f"display {thinking.display!r} was left out: it cannot be chosen while thinking is {thinking.mode!r}"
    )
    return replace(wish, thinking=replace(thinking, display="")).noted(note)


def _mode_effort(wish: Wish, settings: Settings) -> Wish:
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
    return replace(wish, thinking=replace(thinking, effort="".join(most))).noted(note)


def _effort(wish: Wish, settings: Settings) -> Wish:
    thinking, abilities = wish.thinking, settings.model.abilities
    if thinking is None or not thinking.effort:
        return wish
    if not abilities.takes_effort(thinking.effort):
        can = f"takes {', '.join(abilities.efforts)}" if abilities.efforts else "takes none"
        nearest = abilities.nearest_effort(thinking.effort)
        done = f"became {nearest!r}" if nearest else "was left out"
        near = wish.noted(f"effort {thinking.effort!r} {done}: {settings.model.id} {can}")
        left = replace(thinking, effort=nearest)
        near = replace(near, thinking=left if left != Thinking() else None)
        return _effort(near, settings) if nearest else near
    if settings.tools and not abilities.effort_with_tools:
        note = f"effort {thinking.effort!r} was left out: {settings.model.id} takes none beside tools here"
    else:
        return wish
    left = replace(thinking, effort="")
    return replace(wish, thinking=left if left != Thinking() else None).noted(note)


def _sampling(wish: Wish, settings: Settings) -> Wish:
    sampling = wish.sampling
    given = [name for name in ("temperature", "top_p", "top_k") if getattr(sampling, name) is not None]
    if not given or settings.model.abilities.sampling:
        return wish
    note = f"{', '.join(given)} left out: {settings.model.id} does not take sampling settings"
    return replace(wish, sampling=Sampling(stop_sequences=sampling.stop_sequences)).noted(note)


def _clashes(thinking: Thinking | None, settings: Settings) -> bool:
    return thinking is not None and thinking.mode in settings.model.abilities.unforced_while


def _called(choice: ToolChoice) -> str:
    return repr(choice.name or choice.mode)


Rule = Callable[[Wish, Settings], Wish]
Subject = Literal["thinking", "sampling", "max_tokens", "extras", "left_out", "choice"]
"""What a rule is about; where nothing is asked for about it, the rule is not looked at."""

RULES: tuple[tuple[str, str, Subject, Rule], ...] = (
    ("a thinking mode the model does not have", "left out", "thinking", _thinking_mode),
    ("an allowance for thinking the model does not take", "left out", "thinking", _allowance),
    (
        "thinking with an allowance where a tool loop does not open with reasoning",
        "off until the calls are dealt with",
        "thinking",
        _unproven,
    ),
    ("an allowance for thinking that is too small or too large", "the nearest", "thinking", _allowance_size),
    (
        "an effort the model does not take",
        "the nearest; left out where it takes none beside tools",
        "thinking",
        _effort,
    ),
    ("an effort beyond what the thinking mode takes", "the most it takes", "thinking", _mode_effort),
    ("a display in a thinking mode that shows nothing", "left out", "thinking", _unshown),
    ("sampling settings the model does not take", "left out", "sampling", _sampling),
    ("more output tokens than the model gives", "as many as it gives", "max_tokens", _max_tokens),
    (
        "more or longer stop sequences than the model takes",
        "the first ones that fit",
        "sampling",
        _stop_sequences,
    ),
    ("an extra of another provider", "not sent", "extras", _foreign_extras),
    ("a forced tool choice that the endpoint refused in this run", "`auto`", "left_out", _refused_choice),
    ("cache parameters that the endpoint refused in this run", "not sent", "left_out", _refused_cache),
    (
        "an answer that has to come as a call",
        "some call is forced where it can be",
        "choice",
        _answer_by_call,
    ),
    ("a tool choice without tools", "left out", "choice", _no_tools),
    ("a forced tool on a model that cannot be forced", "`auto`", "choice", _unforced),
    ("a forced tool while the model thinks", "`auto`", "choice", _unforced_while_thinking),
)
