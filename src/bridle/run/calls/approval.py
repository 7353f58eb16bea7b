"""Finds what a waiting run waits for: approvals, and the results of calls that the caller runs (`external_tool`).

A waiting run has ended and its questions are in the log, so an answer needs no running process: any process
that can open the store can record one, and the next `resume` continues from there.

A run that is alive puts its questions to its approver, unless another process answers first. A question has one answer:
the first one claims it, and the other one is not used.

    Agent(…, approver=wait_for_answers)     do not ask here: wait until another process answers
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from hashlib import sha256
from inspect import isawaitable
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from bridle.core.calls.argument_changes import complete_arguments
from bridle.core.calls.pending import PendingCall, find_call
from bridle.core.state import State
from bridle.run.clock import SessionClock
from bridle.run.validate_input import check_chosen, parse_prompt
from bridle.values.calls import ApprovalVerdict, PendingApproval
from bridle.values.errors import MisuseError
from bridle.values.events import ApprovalAsked
from bridle.values.message import Media, PromptPart, Text, ToolCall, ToolResult

Approver = Callable[[PendingApproval], Awaitable[ApprovalVerdict | None]]
"""Asks a person while the run waits and returns the answer; None leaves the question open and ends the run."""
APPROVAL_ID_LENGTH = 12
EXPIRED: Final = "late"
ANSWERED: Final = "answered elsewhere"
Answer = ApprovalVerdict | Literal["late", "answered elsewhere"] | None
CallResult = str | Text | Media | Sequence[str | Text | Media] | ToolResult
"""Result of a call that the caller ran: its text, its parts, or a `ToolResult` with an outcome."""


def list_pending_approvals(session: str, state: State) -> tuple[PendingApproval, ...]:
    """The unanswered questions of a session, in the order of its calls."""
    found = (make_pending_approval(session, item, state) for item in state.calls.batch.pending)
    return tuple(question for question in found if question is not None)


def list_approved_calls(session: str, state: State) -> tuple[PendingApproval, ...]:
    """The calls of a session that a person has approved and that have not started, in the order of its calls."""
    return tuple(
        replace(
            _describe_question(session, item, question, state),
            is_approved=True,
            approved_by=item.answer.by,
            is_uncompared=item.answer.is_uncompared,
        )
        for item in state.calls.batch.pending
        if item.answer is not None and (question := item.approved_question) is not None
    )


def find_answerable(
    session: str, state: State, wanted: str, verdict: ApprovalVerdict, *, compares: bool
) -> tuple[PendingApproval, int]:
    """The question that an answer is about, and the number of earlier answers that it replaces.

    A call that is approved and has not started can still be rejected. If no code was compared with its approval, code
    that compares can approve it again.
    """
    open_questions = list_pending_approvals(session, state)
    again = [
        each
        for each in list_approved_calls(session, state)
        if verdict.answer == "reject" or (verdict.answer == "approve" and each.is_uncompared and compares)
    ]
    is_open = any(_is_meant(each, wanted) for each in open_questions)
    question = find_pending_approval(open_questions if is_open else again or open_questions, wanted)
    place = find_call(state.calls.batch.pending, question.call_id) if question.is_approved else None
    answer = state.calls.batch.pending[place].answer if place is not None else None
    return question, 0 if answer is None else answer.replaces + 1


def make_pending_approval(session: str, item: PendingCall, state: State) -> PendingApproval | None:
    question = item.unanswered_question
    return None if question is None else _describe_question(session, item, question, state)


def _describe_question(
    session: str, item: PendingCall, question: ApprovalAsked, state: State
) -> PendingApproval:
    is_in_doubt = bool(item.attempt) or question.question == "in_doubt"
    arguments = item.arguments if is_in_doubt else item.call.arguments
    # guard: question-shows-defaults
    return PendingApproval(
        id=make_approval_id(session, question.binding),
        session=session,
        call_id=item.call.id,
        tool=item.call.name,
        arguments=arguments,
        rule=question.rule,
        question=question.question,
        asked_at=item.asked_at,
        expires_at=question.expires_at,
        binding=question.binding,
        preview=question.preview,
        complete_arguments=complete_call_arguments(state, item.call.name, arguments),
    )


def complete_call_arguments(state: State, tool: str, arguments: str) -> str:
    """The arguments a tool of this session runs with, including the defaults of its schema."""
    spec = state.settings.find_tool(tool)
    return complete_arguments(spec, arguments)


def make_approval_id(session: str, binding: str) -> str:
    """The id of a pending approval; includes the session, because two sessions may ask the same question."""
    return sha256(f"{session}:{binding}".encode()).hexdigest()[:APPROVAL_ID_LENGTH]


def encode_arguments(given: Mapping[str, object] | str | None) -> str | None:
    """Encode a person's arguments as JSON text; raises `MisuseError` if JSON cannot represent them."""
    if given is None or isinstance(given, str):
        return given
    try:
        return msgspec.json.encode(given).decode()
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise MisuseError(f"the arguments cannot be encoded as a JSON object: {error}") from None


def find_pending_approval(questions: Sequence[PendingApproval], wanted: str) -> PendingApproval:
    """Find a pending approval by its id, a prefix of it, or its call id; raises `MisuseError`."""
    if not wanted.strip():
        raise MisuseError("the approval id is empty; `bridle approvals` lists the pending ones")
    # guard: answer-finds-question
    found = [item for item in questions if _is_meant(item, wanted)]
    # guard: one-question-meant
    if len(found) == 1:
        return found[0]
    listed = ", ".join(f"{item.id} ({item.tool})" for item in questions) or "none"
    problem = (
        f"{wanted!r} matches several pending approvals"
        if found
        else f"no pending approval matches {wanted!r}"
    )
    raise MisuseError(f"{problem}; pending: {listed}")


def _is_meant(question: PendingApproval, wanted: str) -> bool:
    return question.id.startswith(wanted) or question.call_id == wanted


def list_external_calls(state: State) -> tuple[ToolCall, ...]:
    """The calls that wait for the caller, in the order of the reply."""
    return tuple(
        item.effective_call
        for item in state.calls.batch.pending
        if item.result is None
        and not item.problem
        and item.unanswered_question is None
        and (spec := state.settings.find_tool(item.call.name)) is not None
        and spec.external
    )


def match_results(
    session: str, state: State, given: Mapping[str, CallResult]
) -> tuple[tuple[ToolCall, ToolResult], ...]:
    """The waiting calls with their results; raises `MisuseError` for a result that no call waits for."""
    waiting = {call.id: call for call in list_external_calls(state)}
    for call_id in given:
        # guard: external-result-awaited
        if call_id not in waiting:
            listed = ", ".join(f"{call.id} ({call.name})" for call in waiting.values()) or "none"
            raise MisuseError(
                f"session {session!r} does not wait for a result of {call_id!r}; it waits for: {listed}"
            )
    return tuple((waiting[call_id], _make_result(call_id, value)) for call_id, value in given.items())


def _make_result(call_id: str, given: CallResult) -> ToolResult:
    if isinstance(given, ToolResult):
        return replace(given, call_id=call_id)
    is_empty = not isinstance(given, Text | Media) and not given
    return ToolResult(call_id=call_id, parts=() if is_empty else _parse_parts(call_id, given))


def _parse_parts(
    call_id: str, given: str | Text | Media | Sequence[str | Text | Media]
) -> tuple[PromptPart, ...]:
    try:
        return parse_prompt(list(given) if isinstance(given, tuple) else given)  # type: ignore[arg-type]
    except MisuseError as error:
        raise MisuseError(
            f"the result of {call_id!r} must be text, Media, or a list of them: {error}"
        ) from None


def describe_waiting(calls: Sequence[PendingCall], state: State) -> str:
    """Reason of a run that ends as waiting for these calls."""
    external = {call.id: call.name for call in list_external_calls(state)}
    asked = [
        item.call.name + (f" in session {item.waiting_session}" if item.waiting_session else "")
        for item in calls
        if item.call.id not in external
    ]
    answers = f"an answer about {', '.join(asked)}" if asked else ""
    results = f"the result of {', '.join(external.values())}" if external else ""
    return f"waiting for {' and '.join(filter(None, (answers, results)))}"


async def wait_for_answers(question: PendingApproval) -> ApprovalVerdict | None:
    """Approver that waits for an answer from elsewhere (`bridle approvals approve`), or until the question expires."""
    await asyncio.get_running_loop().create_future()
    return None


class PersonQuestions:
    """The open questions of one driver."""

    def __init__(self, approver: Approver | None, clock: SessionClock) -> None:
        self._approver, self._clock = approver, clock
        self.takes_answers = False
        """True while answers of other processes arrive."""
        self._claimed: set[str] = set()
        self._answered: dict[str, asyncio.Event] = {}

    def claim(self, binding: str) -> bool:
        """Claim a question for an answer; False if another answer has it."""
        if binding in self._claimed:
            return False
        self._claimed.add(binding)
        return True

    def release(self, binding: str) -> None:
        """Give a claim back: the answer was not accepted."""
        self._claimed.discard(binding)

    def notify(self, binding: str) -> None:
        """Wake the question: another process's answer is recorded."""
        self._answered.setdefault(binding, asyncio.Event()).set()

    async def ask(self, question: PendingApproval) -> Answer:
        """The approver's verdict, or how the question was settled; None leaves it open and ends the run."""
        if self._approver is None or (self._approver is wait_for_answers and not self.takes_answers):
            return None
        try:
            async with asyncio.timeout(self._clock.seconds_left(question.expires_at)) as time:
                verdict = await self._race(self._approver, question)
        except TimeoutError:
            if not time.expired():
                raise  # raised by the approver itself
            return EXPIRED
        if verdict == ANSWERED:
            return ANSWERED
        if self._clock.seconds_left(question.expires_at) == 0:
            return EXPIRED
        if verdict is not None and not self.claim(question.binding):
            await self._answered.setdefault(question.binding, asyncio.Event()).wait()
            return ANSWERED
        return verdict

    async def _race(self, approver: Approver, question: PendingApproval) -> Answer:
        if not self.takes_answers:
            return await _call_approver(approver, question)
        answered = self._answered.setdefault(question.binding, asyncio.Event())
        asked = asyncio.create_task(_call_approver(approver, question))
        elsewhere = asyncio.create_task(answered.wait())
        try:
            await asyncio.wait((asked, elsewhere), return_when=asyncio.FIRST_COMPLETED)
            return ANSWERED if answered.is_set() else asked.result()
        finally:
            for task in (asked, elsewhere):
                task.cancel()
            await asyncio.gather(asked, elsewhere, return_exceptions=True)


async def _call_approver(approver: Approver, question: PendingApproval) -> ApprovalVerdict | None:
    answer: object = approver(question)
    if not isawaitable(answer):
        raise MisuseError(f"the function approver=… must be async; it returned {answer!r}")
    return check_chosen("approver", await answer, ApprovalVerdict)
