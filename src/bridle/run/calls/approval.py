"""Questions to a person: what is open in a session, and how an answer gets into its log.

A run that waits has ended; what it waits for is in the log.  So an answer needs no running
process: whoever can open the store can give it, and the next `resume` goes on from there.
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
"""Puts a question to somebody and brings the answer while the run waits; None leaves it open and stops."""
APPROVAL_ID_LENGTH = 12


def list_pending_approvals(session: str, state: State) -> tuple[PendingApproval, ...]:
    """Questions that are written down and not answered yet, in the order of the calls."""
    found = (make_pending_approval(session, item, state) for item in state.pending_calls)
    return tuple(question for question in found if question is not None)


def make_pending_approval(session: str, item: PendingCall, state: State) -> PendingApproval | None:
    asked = item.unanswered_question
    if asked is None:
        return None
    is_doubted = bool(item.attempt) or asked.question == "in_doubt"
    arguments = item.arguments if is_doubted else item.call.arguments
    return PendingApproval(
        id=make_approval_id(session, asked.binding),
        session=session,
        call_id=item.call.id,
        tool=item.call.name,
        arguments=arguments,
        rule=asked.rule,
        question=asked.question,
        asked_at=item.asked_at,
        expires_at=asked.expires_at,
        binding=asked.binding,
        complete_arguments=complete_call_arguments(state, item.call.name, arguments),
    )


def complete_call_arguments(state: State, tool: str, arguments: str) -> str:
    """What a tool of this session runs with: the arguments and the defaults of its schema."""
    spec = next((spec for spec in state.settings.all_tools if spec.name == tool), None)
    return complete_arguments(spec, arguments)


def make_approval_id(session: str, binding: str) -> str:
    """Two sessions may ask the very same thing; an id must mean one of them."""
    return sha256(f"{session}:{binding}".encode()).hexdigest()[:APPROVAL_ID_LENGTH]


def encode_arguments(given: Mapping[str, object] | str | None) -> str | None:
    """Arguments that a person wrote, as JSON text; raises `MisuseError` for what JSON cannot hold."""
    if given is None or isinstance(given, str):
        return given
    try:
        return msgspec.json.encode(given).decode()
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise MisuseError(f"these arguments are no JSON object: {error}") from None


def find_pending_approval(questions: Sequence[PendingApproval], wanted: str) -> PendingApproval:
    """The question that an id, the beginning of one, or a call's id means."""
    if not wanted.strip():
        raise MisuseError("the id of the question is empty; `bridle approvals` lists what is open")
    found = [item for item in questions if item.id.startswith(wanted) or item.call_id == wanted]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(f"{item.id} ({item.tool})" for item in questions) or "nothing"
    how = "more than one open question" if found else "no open question"
    raise MisuseError(f"{how} is meant by {wanted!r}; waiting for an answer: {listed}")
