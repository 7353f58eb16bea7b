"""Chooses the next effects for the pending calls of a reply.

A call gets its id and is validated once, when its reply arrives. From then on it is answered, invalid (gets
an error result), in doubt (started by an earlier driver: its tool's policy decides), denied, waiting for a
person, or runnable.

The result of a batch must be as if its calls ran in the order the model wrote them. A call therefore starts
only if no earlier unfinished call conflicts with it (`CallConflicts`). A call that waits for a person or
for the caller only delays calls that are known to use the same resource, because the wait has no bound.

The driver records everything that needs no tool before it starts one. So once a tool has started
(`State.tools_started`), calls that cannot start are skipped quickly, and the scan ends where no later call
could start either, or after `LOOK_AHEAD_MAX` calls. The work per reply is linear in its number of calls.
"""

from collections.abc import Mapping
from functools import cached_property, lru_cache
from hashlib import sha256

from msgspec.structs import replace

from bridle.core.budget.limits import (
    TIME_UP_IN_DOUBT,
    TOOL_CALLS_NOTICE,
    TOOL_CALLS_RULE,
    deadline,
    is_time_up,
    tool_calls_left,
)
from bridle.core.context.assemble import callable_tools
from bridle.core.effects import AwaitApprovals, Effect, EndRun, ProbeTool, RequestApproval, RunTool, SkipCall
from bridle.core.evaluate_reply import ANSWER_GIVEN, NO_ANSWER, answer_output_call, find_accepted_output
from bridle.core.state import State
from bridle.values.calls import ResourceClaim
from bridle.values.events import ApprovalAnswered, ApprovalQuestion
from bridle.values.message import Part, Reply, Stop, ToolCall
from bridle.values.request import ToolSpec

from .pending import (
    SAME_ACTION_NOTICE,
    SAME_IN_DOUBT_NOTICE,
    CallConflicts,
    PendingCall,
    canonical_arguments,
    find_receipt,
    share_doubt,
)
from .permission import PermissionDecision, approval_binding, decide_permission
from .validation import ArgumentProblem, check_arguments, explain_unknown_tool

CALLS_FORBIDDEN = "No tool may be called now. Answer without."
ARGUMENTS_TRUNCATED = (
    "The arguments were truncated: the reply reached its length limit. Nothing was run; call again."
)
CALL_IN_DOUBT = (
    "This call was started and then interrupted. Whether it took effect is unknown; it was not run again."
    " Find out before you repeat it."
)
CALL_DENIED = "This call is not allowed here ({rule}). It was not run."
CALL_REJECTED = "A person declined this call. It was not run."
IN_DOUBT_RULE = "it is unknown whether the call took effect"
APPROVAL_NOT_COUNTED = "the approval in the log has no valid proof and is ignored"
DUPLICATE_NOTICE = "This call came twice in one reply and was run once. Its result:"
APPROVAL_EXPIRED = "Nobody answered in time whether this call may run. It was not run."
NOT_RUN_AGAIN = "A person decided that it is not run again."
TOO_MANY_CALLS = (
    "the reply asks for {count:,} tool calls and at most {limit:,} are allowed (reply_calls_max);"
    " none of them was run"
)
LOOK_AHEAD_MAX = 256
NO_ANSWER_IN_TIME = "Nobody answered in time what is to become of it."
CUT_OFF_STOPS, COMPLETE_STOPS = (Stop.LENGTH, Stop.CONTEXT), (Stop.DONE, Stop.TOOLS)


def number_calls(reply: Reply, turn: int) -> Reply:
    """The reply with our ids on its calls: unique in the session, valid on every wire."""
    index = 0
    parts: list[Part] = []
    for part in reply.parts:
        if type(part) is ToolCall:
            parts.append(replace(part, id=make_call_id(turn, index)))
            index += 1
        else:
            parts.append(part)
    return replace(reply, parts=tuple(parts)) if index else reply


@lru_cache(maxsize=1024)  # every streamed piece of a call asks for its id
def make_call_id(turn: int, index: int) -> str:
    # defect: call-id
    return f"c{turn}_{index}"


def open_calls(
    reply: Reply,
    calls: tuple[ToolCall, ...],
    state: State,
    output_error: str = "",
    claims: tuple[ResourceClaim, ...] = (),
    *,
    forbidden: bool = False,
) -> tuple[PendingCall, ...]:
    """The calls of a reply as pending ones, each with its problem if it is invalid. `forbidden`: none is allowed."""
    settings, known = state.settings, callable_tools(state)
    if len(calls) == 1 and not output_error and not claims and not forbidden:
        problem = ARGUMENTS_TRUNCATED if _is_cut_off(reply, calls[0]) else find_call_problem(calls[0], known)
        return (PendingCall(call=calls[0], problem=problem),)
    claims_by_id = {claim.call_id: claim for claim in claims}
    answers = settings.output.call_names if settings.output is not None else ()
    first_places: dict[tuple[str, str, str], int] = {}
    pending: list[PendingCall] = []
    for place, call in enumerate(calls):
        is_cut_off = place == len(calls) - 1 and _is_cut_off(reply, call)
        problem = ARGUMENTS_TRUNCATED if is_cut_off else find_call_problem(call, known)
        if not problem and forbidden and call.name not in answers:
            problem = CALLS_FORBIDDEN
        if not problem and call.name in answers and call.name not in settings.output_functions:
            problem = output_error
        first = first_places.setdefault((call.wire_id, call.name, call.arguments), place)
        same = first if call.wire_id and first < place else None
        claim = claims_by_id.get(call.id)
        pending.append(PendingCall(call=call, duplicate_of=same, problem=problem, resource_claim=claim))
    return tuple(pending)


def find_call_problem(call: ToolCall, known: Mapping[str, ToolSpec]) -> str:
    spec = known.get(call.name)
    if spec is None:
        return explain_unknown_tool(call.name, tuple(known))
    checked = check_arguments(spec, call.arguments)
    return checked.text if type(checked) is ArgumentProblem else ""


def choose_call_effects(state: State) -> tuple[Effect, ...]:
    """Next effects for calls without a result."""
    calls, limit = state.calls.batch, state.settings.reply_calls_max
    count = len(calls.pending)
    # guard: calls-per-reply-limit
    # defect: calls-of-a-reply
    if limit is not None and count > limit:
        return (EndRun(stop="failed", reason=TOO_MANY_CALLS.format(count=count, limit=limit)),)
    batch = _BatchDispatch(state)
    effects = batch.effects(skips_blocked=calls.tools_started)
    is_idle = calls.tools_started and not batch.running
    if is_idle and not any(isinstance(effect, RunTool) for effect in effects):
        return _BatchDispatch(state).effects(skips_blocked=False)  # the remaining calls may need no tool
    return effects


class _BatchDispatch:
    """One pass over the pending calls, in order."""

    def __init__(self, state: State) -> None:
        pending = state.calls.batch.pending
        self._state = state
        self._is_only_call = len(pending) == 1  # it conflicts with nothing
        self._by_name = state.settings.tools_by_name
        self._effects: list[Effect] = []
        self._waiting: list[PendingCall] = []
        self._actions: set[tuple[str, bytes]] = set()
        """Running or waiting calls of tools with `once_per`, by tool and canonical arguments."""
        self.running = [item.call.name for item in pending if item.running and item.result is None]
        """Name of the tool of every running call."""
        self._calls_left = tool_calls_left(state)
        self._calls_taken = 0
        """Calls of the remaining allowance taken by earlier calls of the reply."""
        self._functions = state.settings.output_functions
        found = find_accepted_output(state, pending) if self._functions else NO_ANSWER
        self._is_answered = found is not NO_ANSWER and found != NO_ANSWER
        self._is_late = False
        """A call in doubt cannot be settled: the run's time is up."""

    @cached_property
    def _conflicts(self) -> CallConflicts:
        return CallConflicts()

    def effects(self, *, skips_blocked: bool) -> tuple[Effect, ...]:
        """The effects of the pass; `skips_blocked`: without those of calls that cannot start now."""
        self._tools_started, scanned = skips_blocked, 0
        for item in self._state.calls.batch.pending:
            if item.result is None:
                if self._tools_started and (self._is_blocked() or scanned >= LOOK_AHEAD_MAX):
                    break
                scanned += 1
                if (skip := self._skip_without_tool(item)) is not None:
                    self._effects.append(skip)
                elif item.call.name in self._by_name:
                    self._consider_call(item, self._by_name[item.call.name])
        if self._effects or self.running or not (self._waiting or self._is_late):
            return tuple(self._effects)
        if self._is_late:
            return (EndRun(stop="seconds", reason=TIME_UP_IN_DOUBT),)
        return (AwaitApprovals(calls=tuple(self._waiting)),)

    def _skip_without_tool(self, item: PendingCall) -> Effect | None:
        """Result for a call that needs no tool, or its check; None if it needs a tool or has to wait."""
        call, output = item.call, self._state.settings.output
        # defect: wrong-arguments
        if item.problem:
            return SkipCall(call=call, outcome="invalid", why=item.problem)
        # defect: beside-answer
        if self._is_answered and not item.attempt:
            return SkipCall(call=call, outcome="cancelled", why=ANSWER_GIVEN)
        if output is not None and output.mode == "tool" and call.name == output.name:
            return answer_output_call(self._state, item)
        if call.name not in self._by_name and item.is_declined and item.answer is not None:
            return follow_declining_answer(item, item.answer)
        if call.name not in self._by_name:
            # Valid when the reply arrived, but the session was resumed with other tools.
            if item.in_doubt:
                return SkipCall(call=call, outcome="unknown", why=CALL_IN_DOUBT)
            return SkipCall(
                call=call, outcome="invalid", why=explain_unknown_tool(call.name, tuple(self._by_name))
            )
        return None

    def _consider_call(self, item: PendingCall, spec: ToolSpec) -> None:
        if item.running or item.waiting_session:  # only calls without a result are considered
            self._waiting += [item] if item.waiting_session else []
            self._add_unfinished(item, spec)
            return
        if self._tools_started and self._must_wait(item, spec):
            self._conflicts.add_unfinished(item, spec)
            return
        if (duplicate := self._find_duplicate(item, spec)) is not None:
            if duplicate.result is not None:
                text = duplicate.result.text or duplicate.result.outcome
                self._effects.append(
                    SkipCall(
                        call=item.call, outcome=duplicate.result.outcome, why=f"{DUPLICATE_NOTICE} {text}"
                    )
                )
            return
        takes_time = spec.on_unknown in ("probe", "retry") and spec.effect != "read"
        if item.in_doubt and takes_time and is_time_up(self._state):
            self._is_late = True
            self._add_unfinished(item, spec)
            return
        decision = decide_permission(self._state, item, spec)
        # defect: doubtful-write
        if item.in_doubt and spec.on_unknown != "retry":
            self._resolve_in_doubt(item, spec, decision)
        elif decision.is_default and decision.permission == "deny" and self._has_been_asked(item, spec):
            # A person was already asked about this call: the answer counts, and the call waits for it.
            self._ask_person(item, spec, decision.rule)
        elif decision.permission == "deny" and item.in_doubt:
            self._effects.append(_skip_forbidden_retry(item, decision.rule))
        # defect: denied-call
        elif decision.permission == "deny":
            why = CALL_DENIED.format(rule=decision.rule)
            self._effects.append(SkipCall(call=item.call, outcome="denied", why=why, rule=decision.rule))
        elif self._answer_from_receipt(item, spec, decision):
            return
        elif decision.permission == "ask":
            self._ask_person(item, spec, decision.rule)
        # defect: rejected-later
        elif item.answer is not None and item.answer.answer == "reject":
            # A rejection stands even if the rules would allow the call by now.
            self._follow_answer(item, spec, item.answer)
        else:
            self._start_call(item, spec, decision.rule)

    def _has_been_asked(self, item: PendingCall, spec: ToolSpec) -> bool:
        if item.approvals_discarded:
            return True
        binding = approval_binding(self._state.settings.policy, item, spec, "run")
        return item.question is not None and item.question.binding == binding

    def _find_duplicate(self, item: PendingCall, spec: ToolSpec) -> PendingCall | None:
        """An earlier call of the reply with the same id and content: this one repeats it and is not run."""
        # defect: repeated-call
        if spec.effect == "read" or item.duplicate_of is None:
            return None
        return self._state.calls.batch.pending[item.duplicate_of]

    def _is_blocked(self) -> bool:
        """True if no later call can start."""
        return self._conflicts.blocks_all or len(self.running) >= self._state.settings.tools_at_once_max

    def _must_wait(self, item: PendingCall, spec: ToolSpec) -> bool:
        """True if only earlier calls prevent this one from starting."""
        if item.in_doubt or item.question is not None or self._calls_left is not None:
            return False
        return self._is_at_capacity(spec) or self._conflicts.must_wait(item, spec)

    def _is_at_capacity(self, spec: ToolSpec) -> bool:
        # defect: tool-at-once
        # defect: calls-at-once
        return len(self.running) >= self._state.settings.tools_at_once_max or (
            spec.at_once_max is not None and self.running.count(spec.name) >= spec.at_once_max
        )

    def _add_unfinished(self, item: PendingCall, spec: ToolSpec) -> None:
        self._conflicts.add_unfinished(item, spec)
        self._add_action(item, spec)

    def _add_action(self, item: PendingCall, spec: ToolSpec) -> None:
        if spec.once_per is not None:
            self._actions.add((spec.name, canonical_arguments(item.arguments, spec)))

    def _answer_from_receipt(self, item: PendingCall, spec: ToolSpec, decision: PermissionDecision) -> bool:
        """Handle a call that repeats an earlier action (`once_per`); return False if there is none."""
        if spec.once_per is None or item.attempt:
            return False
        state = self._state
        run = len(state.conversation.prompt_ids)
        receipt = find_receipt(state.calls.receipts, item, spec, run=run, now=state.now)
        # defect: receipt
        if receipt is not None:
            why = SAME_ACTION_NOTICE.format(call_id=receipt.result.call_id)
            self._effects.append(
                SkipCall(call=item.call, outcome="ok", why=why, source="receipt", receipt=receipt)
            )
            return True
        # defect: equal-actions
        if (spec.name, canonical_arguments(item.arguments, spec)) in self._actions:
            return True
        shared = share_doubt(state.calls.in_doubt, item, spec, run=run, now=state.now)
        if not shared.in_doubt or spec.on_unknown == "retry":
            return False
        self._resolve_in_doubt(shared, spec, decision)
        return True

    def _resolve_in_doubt(self, item: PendingCall, spec: ToolSpec, decision: PermissionDecision) -> None:
        """Handle a call that was started by an earlier driver and has no result."""
        # defect: probe
        if spec.on_unknown == "probe":
            self._effects.append(
                ProbeTool(
                    call=item.effective_call,
                    key=self._call_key(item),
                    attempt=item.attempt,
                    timeout_seconds=spec.timeout_seconds,
                    deadline=deadline(self._state),
                    unknown_notice=_doubt_notice(item),
                )
            )
            self._add_unfinished(item, spec)
        # defect: ask-person
        elif spec.on_unknown == "ask":
            forbidden = decision.rule if decision.permission == "deny" else None
            self._ask_person(item, spec, IN_DOUBT_RULE, "in_doubt", forbidden)
        else:
            self._effects.append(SkipCall(call=item.call, outcome="unknown", why=_doubt_notice(item)))
            self._add_action(item, spec)

    def _ask_person(
        self,
        item: PendingCall,
        spec: ToolSpec,
        rule: str,
        question: ApprovalQuestion = "run",
        forbidden: str | None = None,
    ) -> None:
        """Ask a person, or act on the answer. `forbidden` names a rule that no approval overrides."""
        binding = approval_binding(self._state.settings.policy, item, spec, question)
        asked = item.question if item.question is not None and item.question.binding == binding else None
        if item.answer is not None and item.answer.binding == binding:
            self._follow_answer(item, spec, item.answer, forbidden)
        # defect: question-expiry
        elif asked is not None and asked.expires_at is not None and self._state.now >= asked.expires_at:
            self._effects.append(skip_expired(item))
        else:
            self._waiting.append(item)
            self._conflicts.add_waiting(item, spec)
            self._add_action(item, spec)
            self._calls_taken += item.attempt == 0  # reserve allowance for a possible approval
            if asked is None:
                why = item.discard_reason or APPROVAL_NOT_COUNTED
                reason = f"{rule}; {why}" if item.approvals_discarded else rule
                seconds = self._state.settings.approval_seconds
                self._effects.append(
                    RequestApproval(
                        call=item.call,
                        binding=binding,
                        rule=reason,
                        question=question,
                        expires_at=None if seconds is None else self._state.now + seconds,
                    )
                )

    def _follow_answer(
        self, item: PendingCall, spec: ToolSpec, answer: ApprovalAnswered, forbidden: str | None = None
    ) -> None:
        """Act on a person's answer."""
        by = f" by {answer.by}" if answer.by else ""
        if answer.answer == "approve" and forbidden is not None:
            self._effects.append(_skip_forbidden_retry(item, forbidden))
        # defect: rejected-call
        elif answer.answer == "approve":
            self._start_call(item, spec, f"approved{by}")
        else:
            self._effects.append(follow_declining_answer(item, answer))

    def _start_call(self, item: PendingCall, spec: ToolSpec, rule: str) -> None:
        if spec.external:
            self._waiting.append(item)
            self._conflicts.add_waiting(item, spec)
            return
        conflicts, gives_output = False, spec.name in self._functions
        if not self._is_only_call:
            # defect: conflicts
            conflicts = self._conflicts.must_wait(item, spec)
            self._add_unfinished(item, spec)
        if item.attempt == 0 and self._calls_left is not None and not gives_output:
            # defect: tool-call-limit
            if self._calls_taken >= self._calls_left[0]:
                self._refuse_over_limit(item, self._calls_left[1])
                return
            self._calls_taken += 1
        if conflicts or self._is_at_capacity(spec):
            return
        self.running.append(spec.name)
        self._effects.append(
            RunTool(
                call=item.effective_call,
                key=self._call_key(item),
                attempt=item.attempt + 1,
                timeout_seconds=spec.timeout_seconds,
                deadline=deadline(self._state),
                rule=rule,
                gives_output=gives_output,
            )
        )

    def _refuse_over_limit(self, item: PendingCall, used: str) -> None:
        """Refuse a call over the limit; wait instead if an earlier call may still be rejected."""
        if not self._waiting:
            why = TOOL_CALLS_NOTICE.format(used=used)
            self._effects.append(SkipCall(call=item.call, outcome="cancelled", why=why, rule=TOOL_CALLS_RULE))

    def _call_key(self, item: PendingCall) -> str:
        """Idempotency key of the call: the one it was started with, or that of the action it repeats."""
        state, shared = self._state, item
        if state.calls.in_doubt:
            spec, run = self._by_name[item.call.name], len(state.conversation.prompt_ids)
            shared = share_doubt(state.calls.in_doubt, item, spec, run=run, now=state.now)
        return shared.key or make_call_key(state.calls.request_hash, item.call.id)


def follow_declining_answer(item: PendingCall, answer: ApprovalAnswered) -> SkipCall:
    """Result of a call that a person settled so that it does not run."""
    if answer.answer == "done":
        return SkipCall(call=item.call, outcome="ok", why=answer.reason, source="person")
    by = f" by {answer.by}" if answer.by else ""
    return _skip_unwanted(item, CALL_REJECTED, NOT_RUN_AGAIN, answer.reason, f"rejected{by}")


def skip_expired(item: PendingCall) -> SkipCall:
    """Result of a call that was not approved in time."""
    return _skip_unwanted(item, APPROVAL_EXPIRED, NO_ANSWER_IN_TIME, "", "expired")


def make_call_key(proof: str, call_id: str) -> str:
    """Key that is equal for all attempts at a call, also in forks, and unique to that call."""
    return sha256(f"{proof}:{call_id}".encode()).hexdigest()[:32]


def _skip_unwanted(item: PendingCall, notice: str, doubt_suffix: str, reason: str, rule: str) -> SkipCall:
    """Result of a call that is not run; a call in doubt stays unknown."""
    why = f"{_doubt_notice(item)} {doubt_suffix}" if item.in_doubt else notice
    why = f"{why} Reason: {reason}" if reason else why
    return SkipCall(call=item.call, outcome="unknown" if item.in_doubt else "denied", why=why, rule=rule)


def _skip_forbidden_retry(item: PendingCall, rule: str) -> SkipCall:
    """Result of a call in doubt that a rule does not allow to run again."""
    why = f"{_doubt_notice(item)} Running it again is not allowed here ({rule})."
    return SkipCall(call=item.call, outcome="unknown", why=why, rule=rule)


def _doubt_notice(item: PendingCall) -> str:
    return (
        SAME_IN_DOUBT_NOTICE.format(call_id=item.repeated_call_id) if item.repeated_call_id else CALL_IN_DOUBT
    )


def _is_cut_off(reply: Reply, last: ToolCall) -> bool:
    """True if the reply was cut off where the arguments of its last call may be missing, and not just empty."""
    arguments = last.arguments.strip()
    if reply.stop in CUT_OFF_STOPS:
        return arguments in ("", "{}")
    return not arguments and reply.stop not in COMPLETE_STOPS
