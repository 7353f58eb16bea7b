"""Pending calls: their state, receipts, doubts, and conflicts between them.

The state holds the calls of the latest batch. dispatch.py decides when a call runs, permission.py whether.

Receipts: if equal arguments are the same action for a tool (`ToolSpec.once_per`), a repeated call gets the
earlier result and does not run: within the run, the session, or a stated time. Only completed calls count; a
failed, timed-out or cancelled one may be tried again, and an undone one no longer counts.

Doubts: a call that was started and interrupted is in doubt, and so is an equal call within the same span. The
tool's `on_unknown` decides about it; if it runs, then under the key of the first one. Receipts and doubts are
folded from the log, so resumed sessions and forks have them too.

Conflicts: `CallConflicts` summarizes the earlier calls of a batch, so that checking a later one takes
constant time.
"""

import msgspec
from msgspec.structs import replace

from bridle.values.base import Value
from bridle.values.calls import ResourceClaim, RunConclusion, ServerAnswered, StoredResult
from bridle.values.events import ApprovalAnswered, ApprovalAsked, ResultSource, ToolFinished
from bridle.values.message import ToolCall, ToolResult
from bridle.values.request import ToolSpec
from bridle.values.text import parse_json

from .argument_matching import fill_defaults, read_schema

# not from outside: our own records and queues
INDEX_DIGITS_MAX = 10
SEARCHED_MAX = 8
"""For so few calls, a search is faster than parsing the id."""


class CallHooks(Value, kw_only=True):
    """Decisions of hooks about a call."""

    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    """Names of the hooks that decided before and after it ran."""
    decided_by: str = ""
    """Hook that refused or answered it."""
    edited_by: str = ""
    """Hook that changed its arguments."""
    edits_replaced: int = 0
    """Number of times that a hook changed arguments which a person had edited."""
    refusal: str = ""
    answer: str | None = None
    """Result that a hook gave in place of the tool's."""
    unreviewed: ToolFinished | None = None
    """Its result, until all hooks have decided about it."""
    original: ToolFinished | None = None
    """Its result before a hook changed it; compensation needs it."""

    def for_new_arguments(self) -> "CallHooks":
        """The decisions without those about the earlier arguments of the call."""
        return replace(self, before=(), decided_by="", refusal="", answer=None)


class PendingCall(Value, kw_only=True):
    """One call of the latest batch."""

    call: ToolCall
    problem: str = ""
    """Reason why it must not run, found when the reply arrived; empty if it may."""
    duplicate_of: int | None = None
    """Index in the reply of an earlier call with the same provider id, name and arguments."""
    attempt: int = 0
    """Number of starts; 0 if never started."""
    key: str = ""
    """Idempotency key of all its attempts."""
    repeated_call_id: str = ""
    """Earlier call in doubt that is the same action; set while effects are chosen."""
    running: bool = False
    """Started by the driver that currently writes this log."""
    in_doubt: bool = False
    """Started by an earlier driver, without a result."""
    epoch: int | None = None
    """Epoch under which its last attempt started; None if that has ended or there was none."""
    waiting_session: str = ""
    """Session of a run inside it that waits for a person."""
    result: ToolResult | None = None
    output: str | None = None
    """JSON of the answer that it returned, for an output function."""
    resource_claim: ResourceClaim | None = None
    question: ApprovalAsked | None = None
    """The latest question to a person about it."""
    asked_at: float = 0.0
    answer: ApprovalAnswered | None = None
    approvals_discarded: int = 0
    """Number of its questions and approvals in the log that do not count any more."""
    discard_reason: str = ""
    """Why the last one does not count; empty if its proof was not valid."""
    original: ToolCall | None = None
    """The call that its question is about, if an upgrade of the code has changed its name or arguments since."""
    upgraded_edit: str | None = None
    """Arguments of the answer in the form that an upgrade gave them."""
    hooks: CallHooks = CallHooks()
    server_answers: tuple[ServerAnswered, ...] = ()
    """Answers to requests that its server made during it."""

    @property
    def has_started(self) -> bool:
        """True if it was started and has no result, not even one that hooks have not decided about."""
        is_open = self.running or self.in_doubt or bool(self.waiting_session)
        return is_open and self.result is None and self.hooks.unreviewed is None

    @property
    def unanswered_question(self) -> ApprovalAsked | None:
        """The question that has not been answered yet."""
        asked, answer = self.question, self.answer
        if (
            asked is None
            or self.result is not None
            or (answer is not None and answer.binding == asked.binding)
        ):
            return None
        return asked

    @property
    def approved_question(self) -> ApprovalAsked | None:
        """The question that a person answered with yes, while the call has not started."""
        asked, answer = self.question, self.answer
        is_open = self.attempt == 0 and self.result is None and self.hooks.unreviewed is None
        if asked is None or answer is None or not is_open:
            return None
        return asked if answer.answer == "approve" and answer.binding == asked.binding else None

    @property
    def edited_arguments(self) -> str | None:
        """Arguments that a person gave instead of the model's; None if nobody did."""
        edited = self.answer.arguments if self.answer is not None else None
        return edited if edited is None or self.upgraded_edit is None else self.upgraded_edit

    @property
    def arguments(self) -> str:
        """Arguments that it runs with: the model's, unless a person replaced them."""
        edited = self.edited_arguments
        return self.call.arguments if edited is None else edited

    @property
    def effective_call(self) -> ToolCall:
        """The call with the arguments that it runs with."""
        edited = self.edited_arguments
        return self.call if edited is None else replace(self.call, arguments=edited)

    @property
    def is_declined(self) -> bool:
        """True if a person has settled it so that it does not run: it needs no tool."""
        return self.answer is not None and bool(self.answer.binding) and self.answer.answer != "approve"


def find_call(calls: tuple[PendingCall, ...], call_id: str) -> int | None:
    """Index of a call in its batch. Our ids end in it, so that a long batch need not be searched."""
    if len(calls) == 1:
        return 0 if calls[0].call.id == call_id else None
    if len(calls) > SEARCHED_MAX:
        digits = call_id.rpartition("_")[2]
        is_index = digits.isascii() and digits.isdigit() and len(digits) < INDEX_DIGITS_MAX
        place = int(digits) if is_index else -1
        if 0 <= place < len(calls) and calls[place].call.id == call_id:
            return place
    for at, item in enumerate(calls):
        if item.call.id == call_id:
            return at
    return None


def replace_call(calls: tuple[PendingCall, ...], place: int, item: PendingCall) -> tuple[PendingCall, ...]:
    """The batch with another value of one call."""
    return (item,) if len(calls) == 1 else (*calls[:place], item, *calls[place + 1 :])


def pair_results(calls: tuple[PendingCall, ...]) -> tuple[tuple[ToolCall, ToolResult], ...]:
    """Calls with their results, in the order of the reply."""
    return tuple((item.call, item.result) for item in calls if item.result is not None)


SAME_ACTION_NOTICE = (
    "This call equals an earlier one ({call_id}) that is done, so it was not run again. Its result:"
)
SAME_IN_DOUBT_NOTICE = (
    "This call equals an earlier one ({call_id}) that was started and then interrupted. Whether that one took"
    " effect is unknown, so this one was not run. Find out in another way."
)
LOOKED_UP_SOURCES = ("probe", "person")
"""Sources of a result for a call in doubt that was not run again."""


class Receipt(Value, kw_only=True):
    """A completed call and its result."""

    tool: str
    arguments: bytes
    """In canonical form, with defaults filled in."""
    result: ToolResult
    stored_result: StoredResult | None = None
    at: float = 0.0
    run_number: int = 0
    """Number of the run within the session."""
    conclusion: RunConclusion | None = None
    """The end of the run that the call asked for."""


class CallInDoubt(Value, kw_only=True):
    """A call that was started and interrupted: it is unknown whether it took effect."""

    call_id: str
    tool: str
    arguments: str
    """Arguments that it was started with."""
    key: str
    """Idempotency key that it was started with."""
    at: float = 0.0
    run_number: int = 0


def find_receipt(
    receipts: tuple[Receipt, ...], item: PendingCall, spec: ToolSpec, *, run: int, now: float
) -> Receipt | None:
    """The newest receipt that answers this call; None if it has to run."""
    if spec.once_per is None or not receipts:
        return None
    wanted = canonical_arguments(item.arguments, spec)
    for receipt in reversed(receipts):
        if (receipt.tool, receipt.arguments) == (spec.name, wanted):
            return receipt if _is_in_span(receipt, spec, run, now) else None
    return None


def share_doubt(
    doubts: tuple[CallInDoubt, ...], item: PendingCall, spec: ToolSpec, *, run: int, now: float
) -> PendingCall:
    """The call marked as in doubt, with the earlier key, if it equals an interrupted one."""
    if not doubts or item.attempt or item.key:
        return item
    same = _same_doubts(doubts, item, spec)
    if not same or not _is_in_span(same[-1], spec, run, now):
        return item
    return replace(item, in_doubt=True, key=same[-1].key, repeated_call_id=same[-1].call_id)


def add_doubt(
    doubts: tuple[CallInDoubt, ...], item: PendingCall, *, run: int, at: float
) -> tuple[CallInDoubt, ...]:
    """The doubts plus this call's, if it was started.

    Its tool may be missing now, so `once_per` is evaluated later.
    """
    if item.attempt == 0:
        return doubts
    new = CallInDoubt(
        call_id=item.call.id,
        tool=item.call.name,
        arguments=item.arguments,
        key=item.key,
        at=at,
        run_number=run,
    )
    kept = (old for old in doubts if (old.key, old.tool, old.arguments) != (new.key, new.tool, new.arguments))
    return (*kept, new)


def settle_doubts(
    doubts: tuple[CallInDoubt, ...], item: PendingCall, spec: ToolSpec
) -> tuple[CallInDoubt, ...]:
    """The doubts without those of this call's action, whose outcome is now known."""
    same = _same_doubts(doubts, item, spec)
    return tuple(doubt for doubt in doubts if doubt not in same) if same else doubts


def drop_doubt(doubts: tuple[CallInDoubt, ...], call_id: str) -> tuple[CallInDoubt, ...]:
    """The doubts without that of a call that was undone."""
    return tuple(doubt for doubt in doubts if doubt.call_id != call_id)


def is_still_unknown(item: PendingCall, source: ResultSource) -> bool:
    """True if the call's result does not say whether it took effect."""
    result = item.result
    # A call in doubt that was neither run again nor probed was skipped, which answers nothing.
    return result is not None and (
        result.outcome == "unknown" or (item.in_doubt and source not in LOOKED_UP_SOURCES)
    )


def add_receipt(
    receipts: tuple[Receipt, ...],
    item: PendingCall,
    spec: ToolSpec,
    whole: StoredResult | None,
    *,
    run: int,
    at: float,
    conclusion: RunConclusion | None = None,
) -> tuple[Receipt, ...]:
    """The receipts plus that of a completed call; expired ones are dropped."""
    result = item.result
    if spec.once_per is None or result is None or result.outcome != "ok":
        return receipts
    arguments = canonical_arguments(item.arguments, spec)
    new = Receipt(
        tool=spec.name,
        arguments=arguments,
        result=result,
        stored_result=whole,
        at=at,
        run_number=run,
        conclusion=conclusion,
    )
    kept = (old for old in receipts if old.tool != spec.name or _is_in_span(old, spec, run, at))
    return (*kept, new)


def drop_receipt(receipts: tuple[Receipt, ...], call_id: str) -> tuple[Receipt, ...]:
    """The receipts without that of a call that is being undone."""
    return tuple(receipt for receipt in receipts if receipt.result.call_id != call_id)


def canonical_arguments(arguments: str, spec: ToolSpec) -> bytes:
    """Canonical JSON: independent of order, of written or omitted defaults, and of 5 or 5.0."""
    try:
        parsed = parse_json(arguments.strip() or "{}")
    except ValueError:
        return arguments.encode()
    filled = fill_defaults(read_schema(spec.parameters), parsed)
    return msgspec.json.encode(_unify_numbers(filled), order="sorted")


def _unify_numbers(value: object) -> object:
    """The value with all whole numbers as integers, as JSON Schema compares them."""
    match value:
        case dict():
            return {name: _unify_numbers(member) for name, member in value.items()}
        case list():
            return [_unify_numbers(member) for member in value]
        case float() if value.is_integer():
            return int(value)
    return value


def _same_doubts(doubts: tuple[CallInDoubt, ...], item: PendingCall, spec: ToolSpec) -> list[CallInDoubt]:
    found = [doubt for doubt in doubts if doubt.tool == spec.name] if spec.once_per is not None else []
    if not found:
        return []
    wanted = canonical_arguments(item.arguments, spec)
    return [doubt for doubt in found if canonical_arguments(doubt.arguments, spec) == wanted]


def _is_in_span(receipt: Receipt | CallInDoubt, spec: ToolSpec, run: int, now: float) -> bool:
    match spec.once_per:
        case "session":
            return True
        case "run":
            return receipt.run_number == run
        case float(seconds):
            return now - receipt.at < seconds
    return False


RESOURCE_EFFECTS = ("read", "write")
"""Effects that conflict only on the same resource; every other effect conflicts with everything."""


class CallConflicts:
    """The earlier calls of a batch: unfinished ones, and those that wait for a person."""

    __slots__ = ("_awaited", "_exclusive_waits", "_read", "_unfinished", "_waiting", "_written", "blocks_all")

    def __init__(self) -> None:
        self._unfinished = self._waiting = False
        self.blocks_all = False
        """True if an unfinished call conflicts with every later one."""
        self._exclusive_waits = False
        self._read: set[str | None] = set()
        self._written: set[str | None] = set()
        """Resources that the unfinished calls read or write; None for a call without a known resource."""
        self._awaited: set[tuple[str | None, bool]] = set()
        """Resources of the waiting calls, and whether the call only reads."""

    def add_unfinished(self, item: PendingCall, spec: ToolSpec) -> None:
        self._unfinished = True
        resource = call_resource(item)
        if spec.effect not in RESOURCE_EFFECTS or (spec.effect == "write" and resource is None):
            self.blocks_all = True
        else:
            (self._read if spec.effect == "read" else self._written).add(resource)

    def add_waiting(self, item: PendingCall, spec: ToolSpec) -> None:
        self._waiting = True
        self._exclusive_waits = self._exclusive_waits or spec.effect == "exclusive"
        self._awaited.add((call_resource(item), spec.effect == "read"))

    def must_wait(self, item: PendingCall, spec: ToolSpec) -> bool:
        """True if the call must not start yet."""
        return self._conflicts_with_unfinished(item, spec) or self._conflicts_with_waiting(item, spec)

    def _conflicts_with_unfinished(self, item: PendingCall, spec: ToolSpec) -> bool:
        """True if running it beside an unfinished call could change the result."""
        if self.blocks_all or not self._unfinished:
            return self.blocks_all
        if spec.effect not in RESOURCE_EFFECTS:
            return True
        resource, writes = call_resource(item), self._written
        if spec.effect == "read":
            # defect: read-after-write
            return bool(writes) and (resource is None or resource in writes)
        reads = self._read
        return resource is None or resource in writes or resource in reads or None in reads

    def _conflicts_with_waiting(self, item: PendingCall, spec: ToolSpec) -> bool:
        """True if it is *known* to conflict with a waiting call: exclusive, or on the same resource."""
        if not self._waiting:
            return False
        if self._exclusive_waits or spec.effect == "exclusive":
            return True
        resource = call_resource(item)
        if resource is None:
            return False
        return (resource, False) in self._awaited or (
            spec.effect != "read" and (resource, True) in self._awaited
        )


def call_resource(item: PendingCall) -> str | None:
    """Resource that a call works on. Arguments replaced by a person have a claim of their own."""
    if item.answer is not None and item.answer.arguments is not None:
        return item.answer.resource_claim.resource if item.answer.resource_claim else None
    return item.resource_claim.resource if item.resource_claim else None


# not from outside: our own text, shown to a person or a model
ARGUMENT_CHARACTERS_MAX = 120
"""Maximum length of a call's arguments in a list of calls."""


REPETITION_LEAD = "You have now called"


def list_calls(calls: tuple[ToolCall, ...]) -> str:
    return ", ".join(f"{call.name}({_shorten_arguments(call.arguments)})" for call in calls)


def repetition_notice(repeats: int, calls: tuple[ToolCall, ...]) -> str:
    return (
        f"{REPETITION_LEAD} {list_calls(calls)} {repeats} times with the same arguments and got the same"
        " result each time. Do something different, or give your answer with what you have."
    )


def _shorten_arguments(arguments: str) -> str:
    flat = " ".join(arguments.split())
    return flat if len(flat) <= ARGUMENT_CHARACTERS_MAX else f"{flat[:ARGUMENT_CHARACTERS_MAX]}…"
