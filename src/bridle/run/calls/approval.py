"""Finds the pending approvals of a session.

A waiting run has ended and its questions are in the log, so an answer needs no running process: any process
that can open the store can record one, and the next `resume` continues from there.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from hashlib import sha256

import msgspec

from bridle.core.calls.argument_changes import complete_arguments
from bridle.core.calls.pending import PendingCall
from bridle.core.state import State
from bridle.values.calls import ApprovalVerdict, PendingApproval
from bridle.values.errors import MisuseError

Approver = Callable[[PendingApproval], Awaitable[ApprovalVerdict | None]]
"""Asks a person while the run waits and returns the answer; None leaves the question open and ends the run."""
APPROVAL_ID_LENGTH = 12


def list_pending_approvals(session: str, state: State) -> tuple[PendingApproval, ...]:
    """The unanswered questions of a session, in the order of its calls."""
    found = (make_pending_approval(session, item, state) for item in state.calls.batch.pending)
    return tuple(question for question in found if question is not None)


def make_pending_approval(session: str, item: PendingCall, state: State) -> PendingApproval | None:
    question = item.unanswered_question
    if question is None:
        return None
    is_in_doubt = bool(item.attempt) or question.question == "in_doubt"
    arguments = item.arguments if is_in_doubt else item.call.arguments
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
    found = [item for item in questions if item.id.startswith(wanted) or item.call_id == wanted]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(f"{item.id} ({item.tool})" for item in questions) or "none"
    problem = (
        f"{wanted!r} matches several pending approvals"
        if found
        else f"no pending approval matches {wanted!r}"
    )
    raise MisuseError(f"{problem}; pending: {listed}")
