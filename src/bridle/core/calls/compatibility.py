"""Compares what an unfinished run needs with what the code at hand offers, before anything is recorded.

Code changes while calls wait for a person. Whoever wants to answer or to continue such a run compares first: every
entry that takes an answer, `resume`, and `bridle check waiting`. What is missing is an `Obstacle`; with one, nothing is
recorded and the question stays open.

An open call is taken over into a new declaration of its tool (`CallUpgrade`, recorded with the new settings):

    name           found by `ToolSpec.aliases`
    arguments      mapped by the tool's `upgrade`; without one they must fit the new schema as they are
    defaults       omitted arguments that have another default now are filled in with the old one: the person saw it

A change that matters to the person (the effect, the type of an argument in use, what its preview shows) voids the
question and its approval, and a new one is asked. Docstrings, timeouts, defaults, and arguments that the call does not
use, void nothing.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from bridle.core.state import Phase, State
from bridle.values.calls import CallUpgrade, Obstacle
from bridle.values.events import ApprovalAnswered
from bridle.values.request import ToolSpec
from bridle.values.settings import Settings
from bridle.values.text import parse_json

from .argument_changes import parse_exactly, write_exactly
from .argument_matching import fill_defaults, read_schema
from .pending import PendingCall, find_call
from .permission import approval_binding, decide_permission
from .transitions import update_call
from .validation import ArgumentProblem, check_arguments

ArgumentUpgrade = Callable[[dict[str, Any]], Mapping[str, Any]]
"""Makes the arguments of a tool's present form from those of an earlier one; a pure function."""
ANNOTATIONS = ("title", "description", "default", "examples")
"""Keywords of a schema that accept and reject nothing."""
NAMED_SCHEMAS = ("properties", "$defs", "definitions", "patternProperties")
"""Keywords whose members are schemas under names of the user."""
CALL_POINTS = frozenset(("before_tool", "after_tool"))
OVER_STOPS = (None, "done", "refused")
"""Ends after which a run is not continued; None if there was no run."""
DECLINED_KINDS = ("agent", "version")
"""Obstacles to an answer by which the call does not run."""


class CodeOffer(NamedTuple):
    """The offer of an agent to the runs that it may continue."""

    settings: Settings
    upgrades: Mapping[str, ArgumentUpgrade] = {}
    """By the present name of the tool."""
    unlisted_prefixes: tuple[str, ...] = ()
    """Beginnings of the names of tools that are known only once a server is connected."""
    unlisted_names: frozenset[str] = frozenset()
    """Tools that were given for the run; they are given again to resume it."""

    def find_tool(self, name: str) -> ToolSpec | None:
        """The tool of this name, or the one that had it before."""
        known = self.settings.find_tool(name)
        return known or next((spec for spec in self.settings.all_tools if name in spec.aliases), None)

    def is_unlisted(self, name: str) -> bool:
        return name in self.unlisted_names or name.startswith(self.unlisted_prefixes or "\0")


class Comparison(NamedTuple):
    upgrades: tuple[CallUpgrade, ...] = ()
    obstacles: tuple[Obstacle, ...] = ()


class _Refusal(Exception):
    """A call cannot be taken over."""

    def __init__(self, obstacle: Obstacle) -> None:
        super().__init__(obstacle.reason)
        self.obstacle = obstacle


def is_unfinished(state: State) -> bool:
    """True if a run waits, was interrupted or paused, or left calls in doubt: `resume` continues it."""
    if state.phase is Phase.NEW:
        return False
    is_left = bool(state.calls.batch.pending) or state.run.end.stop == "paused"
    return state.phase is not Phase.IDLE or is_left


def is_promised_to_person(state: State) -> bool:
    """True if a person was asked about an open call of the run."""
    return any(item.result is None and _is_promised(item) for item in state.calls.batch.pending)


def compare_run(
    state: State, offer: CodeOffer, settled: Collection[str] = (), promised: Collection[str] = ()
) -> Comparison:
    """Compare an unfinished run with an agent; `settled` are calls whose results are given to it.

    `promised` are calls inside which a person was asked, as the logs of the runs inside them say.
    """
    upgrades: list[CallUpgrade] = []
    obstacles = [*compare_version(state, offer)]
    if promised or is_promised_to_person(state):
        obstacles += [
            *_compare_hooks(state.settings, offer.settings),
            *_compare_output(state.settings, offer.settings),
        ]
    for item in state.calls.batch.pending:
        if item.result is not None or item.problem or item.call.id in settled:
            continue
        try:
            upgrade = _take_over(state, item, offer)
        except _Refusal as refusal:
            is_promised = _is_promised(item) or item.call.id in promised
            obstacles += [refusal.obstacle] if is_promised else []
        else:
            upgrades += [upgrade] if upgrade is not None else []
    return Comparison(tuple(upgrades), tuple(obstacles))


def compare_version(state: State, offer: CodeOffer) -> tuple[Obstacle, ...]:
    """The obstacle to continuing a run of another version; none for a run that is over."""
    is_over = state.phase is Phase.NEW or (
        state.phase is Phase.IDLE
        and state.run.end.stop in OVER_STOPS
        and not state.calls.batch.pending
        and not state.run.prompt.steering.waiting
    )
    return () if is_over else tuple(_compare_version(state.settings, offer.settings))


def compare_answer(
    state: State, offer: CodeOffer, answer: ApprovalAnswered, previews: Mapping[str, str] | None = None
) -> tuple[Obstacle, ...]:
    """Obstacles to honouring this answer; `previews` are those of the present code, by call."""
    answered = update_call(state, answer.call_id, answer=answer, upgraded_edit=None)
    upgrades, obstacles = compare_run(answered, offer)
    if answer.answer != "approve":
        return tuple(each for each in obstacles if each.kind in DECLINED_KINDS)
    if obstacles:
        return obstacles
    voided = void_by_previews(answered, upgrades, previews or {})
    reasons = [each.voids for each in voided if each.voids and each.call_id == answer.call_id]
    place = find_call(state.calls.batch.pending, answer.call_id)
    if place is None:
        return ()
    upgraded = upgrade_calls(answered, upgrades)
    reasons = reasons or [_find_rule_change(upgraded, upgraded.calls.batch.pending[place], offer)]
    item = state.calls.batch.pending[place]
    return tuple(_describe_stale(item, reason) for reason in reasons if reason)


def void_by_previews(
    state: State, upgrades: Sequence[CallUpgrade], previews: Mapping[str, str]
) -> tuple[CallUpgrade, ...]:
    """The upgrades, and those of calls whose preview differs from the one that the person saw."""
    by_call = {each.call_id: each for each in upgrades}
    for item in state.calls.batch.pending:
        shown = previews.get(item.call.id)
        if shown is None or item.question is None or shown == item.question.preview:
            continue
        made = by_call.get(item.call.id) or _keep_call(item)
        by_call[item.call.id] = replace(made, voids=made.voids or "what its preview shows has changed")
    return tuple(by_call.values())


def upgrade_calls(state: State, upgrades: Sequence[CallUpgrade]) -> State:
    """State in which open calls have the form that the new settings give them."""
    by_call = {each.call_id: each for each in upgrades}
    pending = tuple(
        _upgrade_call(item, by_call[item.call.id]) if item.call.id in by_call else item
        for item in state.calls.batch.pending
    )
    return replace(state, calls=replace(state.calls, batch=replace(state.calls.batch, pending=pending)))


def _upgrade_call(item: PendingCall, upgrade: CallUpgrade) -> PendingCall:
    call = replace(item.call, name=upgrade.name, arguments=upgrade.arguments)
    original = item.original or item.call
    after = replace(item, call=call, original=original, upgraded_edit=upgrade.edited)
    if not upgrade.voids:
        return after
    # A started call keeps its arguments: its key stands for them.
    kept = replace(item.answer, binding="") if item.attempt and item.answer is not None else None
    return replace(
        after,
        original=None,
        question=None,
        answer=kept,
        upgraded_edit=upgrade.edited if kept is not None else None,
        approvals_discarded=item.approvals_discarded + 1,
        discard_reason=upgrade.voids,
    )


def _compare_version(logged: Settings, offered: Settings) -> list[Obstacle]:
    version = logged.version
    if not version or version == offered.version or version in offered.continues:
        return []
    here = f"version {offered.version!r}" if offered.version else "no version"
    return [
        Obstacle(
            kind="version",
            name=version,
            reason=f"its run is of version {version!r} of the agent {logged.name!r}, and this code is {here}",
            remedy=f"use that version, or Agent(continues=[{version!r}])",
        )
    ]


def _compare_hooks(logged: Settings, offered: Settings) -> list[Obstacle]:
    """The hooks that decide about calls and that the code lacks: a person approved in view of them."""
    names = {hook.name for hook in offered.hooks}
    return [
        Obstacle(
            kind="hook",
            name=hook.name,
            reason=f"the hook {hook.name!r} decides about its calls, and this code has none of this name",
            remedy="register a hook of this name, which may return None, or use the code that has it",
        )
        for hook in logged.hooks
        if hook.name not in names and not CALL_POINTS.isdisjoint(hook.points)
    ]


def _compare_output(logged: Settings, offered: Settings) -> list[Obstacle]:
    """Another type of the answer; one that was given for the run, or is given to resume it, is not the agent's."""
    if any(each.option == "output" for each in (*logged.overrides, *offered.overrides)):
        return []
    before, after = (_describe_output(each) for each in (logged, offered))
    if before == after:
        return []
    name = logged.output.name if logged.output is not None else "text"
    return [
        Obstacle(
            kind="output",
            name=name or "an output function",
            reason="its run answers with another output type than this code",
            remedy="give the agent its former output type, or resume it with output=…",
        )
    ]


def _describe_output(settings: Settings) -> object:
    output = settings.output
    if output is None:
        return None
    return _strip(parse_json(output.parameters)) if output.name else None, output.functions


def _is_promised(item: PendingCall) -> bool:
    """True if a person was asked about the call, or is asked inside it: it must not end without them.

    After a question was voided, a crash may come before the next one.
    """
    was_asked = item.question is not None or item.approvals_discarded or item.hooks.edits_replaced
    return bool(was_asked or item.waiting_session) and not item.is_declined


def _take_over(state: State, item: PendingCall, offer: CodeOffer) -> CallUpgrade | None:
    """The call under the declaration of the code at hand; None if it stays as it is."""
    before, name = state.settings.find_tool(item.call.name), item.call.name
    if before is None or before.native is not None:
        return None
    after = offer.find_tool(name)
    if after is None and offer.is_unlisted(name):
        return None
    if after is None:
        raise _Refusal(_describe_missing_tool(item, offer.settings))
    if after == before or after.handover:
        return None
    is_reshaped = after.name != name or _read_shape(after) != _read_shape(before)
    upgrade = offer.upgrades.get(after.name) if is_reshaped else None
    arguments = _map_arguments(item, before, after, upgrade, item.call.arguments, edited=False)
    given = item.edited_arguments
    edited = None if given is None else _map_arguments(item, before, after, upgrade, given, edited=True)
    changes = _list_changes(before, after, item.arguments, is_mapped=upgrade is not None)
    is_asked = item.question is not None and not item.is_declined
    return _make_upgrade(item, after.name, arguments, edited, "; ".join(changes) if is_asked else "")


def _find_rule_change(state: State, item: PendingCall, offer: CodeOffer) -> str:
    """Why the present rules would not let the approved call run; empty if they do, or for a tool not known yet."""
    spec = offer.settings.find_tool(item.call.name)
    if spec is None or item.question is None:
        return ""
    decision = decide_permission(replace(state, settings=offer.settings), item, spec)
    if decision.permission == "deny" and not decision.is_default:
        return f"the rules deny the call now ({decision.rule})"
    is_free = decision.permission == "allow" and item.question.question == "run"
    binding = approval_binding(offer.settings.policy, item, spec, item.question.question)
    return "" if is_free or binding == item.question.binding else "the rules of the policy have changed"


def _make_upgrade(
    item: PendingCall, name: str, arguments: str, edited: str | None, voids: str = ""
) -> CallUpgrade | None:
    is_same = (name, arguments, edited) == (item.call.name, item.call.arguments, item.edited_arguments)
    if is_same and not voids:
        return None
    return CallUpgrade(call_id=item.call.id, name=name, arguments=arguments, edited=edited, voids=voids)


def _keep_call(item: PendingCall) -> CallUpgrade:
    return CallUpgrade(
        call_id=item.call.id,
        name=item.call.name,
        arguments=item.call.arguments,
        edited=item.edited_arguments,
    )


def _map_arguments(
    item: PendingCall,
    before: ToolSpec,
    after: ToolSpec,
    upgrade: ArgumentUpgrade | None,
    arguments: str,
    *,
    edited: bool,
) -> str:
    """The arguments in the form of the new declaration; raises `_Refusal` if they do not fit it."""
    mapped = _pin_defaults(before, after, arguments)
    if upgrade is not None:
        mapped = _call_upgrade(
            item, after, upgrade, fill_defaults(read_schema(before.parameters), _parse(arguments))
        )
    if not edited and item.edited_arguments is not None:
        return mapped  # it runs with the edited ones
    checked = check_arguments(after, mapped)
    if isinstance(checked, ArgumentProblem):
        raise _Refusal(_describe_misfit(item, after, checked.text))
    return mapped


def _call_upgrade(item: PendingCall, after: ToolSpec, upgrade: ArgumentUpgrade, arguments: object) -> str:
    try:
        made = upgrade(arguments if isinstance(arguments, dict) else {})
        if not isinstance(made, Mapping):
            raise TypeError(f"it returned {made!r:.60}, not a mapping")
        return msgspec.json.encode(dict(made)).decode()
    except Exception as error:
        why = f"its upgrade function failed: {type(error).__name__}: {error}"
        raise _Refusal(_describe_misfit(item, after, why)) from error


def _pin_defaults(before: ToolSpec, after: ToolSpec, arguments: str) -> str:
    """The arguments with those omitted ones whose default has changed, so that the call runs as the person saw it."""
    if before.parameters == after.parameters:
        return arguments
    try:
        given = parse_exactly(arguments.strip() or "{}")
    except ValueError:
        return arguments
    if not isinstance(given, dict):
        return arguments
    new = read_schema(after.parameters)
    shown, now = fill_defaults(read_schema(before.parameters), given), fill_defaults(new, given)
    assert isinstance(shown, dict)
    assert isinstance(now, dict)
    known = new.get("properties") or {}
    changed = {
        name: value
        for name, value in shown.items()
        if name in known and now.get(name, _ABSENT) != value and given.get(name, _ABSENT) != value
    }
    return write_exactly({**given, **changed}) if changed else arguments


def _list_changes(before: ToolSpec, after: ToolSpec, arguments: str, *, is_mapped: bool) -> list[str]:
    """Changes of the call that matter to a person."""
    changes = []
    if after.effect != before.effect:
        changes.append(f"the effect of {after.name} changed from {before.effect} to {after.effect}")
    if after.external != before.external:
        changes.append(f"another program runs {after.name} now")
    given = _parse(arguments)
    if is_mapped or not isinstance(given, dict):
        return changes  # the mapping says what the arguments are now
    old, new = _read_shape(before), _read_shape(after)
    for name in sorted(given):
        if _find_property(old, name) != _find_property(new, name):
            changes.append(f"the argument {name!r} of {after.name} is declared in another way")
    return changes


def _read_shape(spec: ToolSpec) -> Any:
    """The schema of a tool without what only describes."""
    return _strip(parse_json(spec.parameters))


def _strip(schema: Any, *, is_named: bool = False) -> Any:
    if isinstance(schema, list):
        return [_strip(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: _strip(each, is_named=name in NAMED_SCHEMAS and not is_named)
        for name, each in schema.items()
        if is_named or name not in ANNOTATIONS
    }


def _find_property(shape: Any, name: str) -> object:
    """Schema of an argument, with the definitions if it refers to one."""
    found = (shape.get("properties") or {}).get(name) if isinstance(shape, dict) else None
    refers = b"$ref" in msgspec.json.encode(found)
    return (found, shape.get("$defs"), shape.get("definitions")) if refers else found


def _parse(arguments: str) -> object:
    try:
        return parse_json(arguments.strip() or "{}")
    except ValueError:
        return arguments


def _describe_missing_tool(item: PendingCall, settings: Settings) -> Obstacle:
    name = item.call.name
    return Obstacle(
        kind="tool",
        name=name,
        call_id=item.call.id,
        reason=f"the call {item.call.id} needs the tool {name!r}, and there is none of this name or alias",
        remedy=f"give its successor @tool(aliases=[{name!r}]), use the code that has it, or reject the call",
    )


def _describe_misfit(item: PendingCall, after: ToolSpec, problem: str) -> Obstacle:
    lines = [line.removeprefix("- ").rstrip(".") for line in problem.splitlines()]
    middle = lines[1:-1] if len(lines) > 2 else lines
    return Obstacle(
        kind="arguments",
        name=after.name,
        call_id=item.call.id,
        reason=f"the arguments of the call {item.call.id} do not fit the tool {after.name!r}: {', '.join(middle)}",
        remedy="map them with @tool(upgrade=…), a function of the old arguments, or reject the call",
    )


def _describe_stale(item: PendingCall, reason: str) -> Obstacle:
    is_asked_again = item.question is None or item.question.question == "run"
    return Obstacle(
        kind="approval",
        name=item.call.name,
        call_id=item.call.id,
        reason=f"the question about the call {item.call.id} is out of date: {reason}",
        remedy="resume the run to have it asked as it is now: bridle resume SESSION -a FILE"
        if is_asked_again
        else "change the rules so that the call may be repeated, or reject it: what it did stays unknown",
    )


_ABSENT = object()
