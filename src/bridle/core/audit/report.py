"""Folds a log into an audit report: decisions of people, rules and hooks, effects of tools, spending.

The log is the only source. Every entry names its record, so that a reader can check it. Calls of read-only tools and
model calls are left out, except for what they cost.
"""

from collections.abc import Iterable, Iterator
from decimal import Decimal
from hashlib import sha256

import msgspec

from bridle.core.recovery.log_repair import fold_log
from bridle.core.state import Phase, State
from bridle.values import events as e
from bridle.values.base import Value
from bridle.values.budget import SubrunStarted, SubrunWaiting
from bridle.values.calls import Policy
from bridle.values.record import Record
from bridle.values.usage import Usage

POLICY_HASH_LENGTH = 16
UNFINISHED_PHASES = (Phase.CALLING_MODEL, Phase.REVIEWING_REPLY, Phase.EVALUATING_REPLY, Phase.RUNNING_TOOLS)
ANSWER_KINDS = {"approve": "approved", "reject": "rejected", "done": "settled"}
TAKEN_FROM_LIVE = "the process that ran it was alive and did not answer"
TAKEN_FROM_ENDED = "the process that ran it had ended"
DOUBT = "started and has no result"


class AuditEntry(Value, kw_only=True):
    """One fact of the log that an auditor asks about."""

    record: int
    at: float
    kind: str
    """Such as `approved`, `rejected`, `effect`, `in doubt`, `taken over`, `redacted`, `ended`."""
    by: str = ""
    """Person, rule or hook that decided."""
    tool: str = ""
    call_id: str = ""
    arguments: str = ""
    """Arguments that the decision or the effect is about, as JSON text."""
    edited_arguments: str = ""
    """Arguments that replaced them."""
    rule: str = ""
    policy: str = ""
    """Hash of the policy in force; empty if there was none."""
    key: str = ""
    """Idempotency key of an effect."""
    outcome: str = ""
    reason: str = ""
    session: str = ""
    """Other session that the entry is about: a subrun, or the parent of a fork."""


class PolicyInForce(Value, kw_only=True):
    hash: str
    version: str
    since: int
    """Record of the settings that put it in force."""


class AuditReport(Value, kw_only=True):
    session: str
    entries: tuple[AuditEntry, ...]
    policies: tuple[PolicyInForce, ...]
    records: int
    head: str
    """Hash of the last record, which covers the whole log."""
    steps: int
    usage: Usage
    usd: Decimal | None
    """Spending of the session without its subruns; None if a price is unknown."""
    tenant: str = ""
    subruns: "tuple[AuditReport, ...]" = ()
    """Reports of the runs inside this session's tools, in order."""
    unread: tuple[str, ...] = ()
    """Subruns whose log is not in the store."""


def audit_log(session: str, records: Iterable[Record]) -> AuditReport:
    """The report of one log; its subruns are named, not followed."""
    listed = tuple(records)
    entries: list[AuditEntry] = []
    policies: list[PolicyInForce] = []

    def observe(record: Record, before: State, after: State) -> None:
        if isinstance(record.event, e.Configured) and (
            not policies or after.settings.policy != before.settings.policy
        ):
            policy = after.settings.policy
            policies.append(PolicyInForce(hash=hash_policy(policy), version=policy.version, since=record.seq))
        entries.extend(_describe(record, before))

    state = fold_log(listed, observe).state
    return AuditReport(
        session=session,
        entries=tuple(entries),
        policies=tuple(policies),
        records=len(listed),
        head=listed[-1].hash if listed else "",
        steps=state.totals.spent.steps,
        usage=state.totals.spent.usage,
        usd=state.totals.spent.usd,
        tenant=state.identity.owner or "",
    )


def hash_policy(policy: Policy) -> str:
    """Hash that identifies the rules of a policy; empty for no policy."""
    if policy == Policy():
        return ""
    return sha256(msgspec.json.encode(policy, order="sorted")).hexdigest()[:POLICY_HASH_LENGTH]


def _describe(record: Record, before: State) -> Iterator[AuditEntry]:
    event = record.event
    entry = AuditEntry(record=record.seq, at=record.at, kind="")
    found = _describe_call(event, before) or _describe_run(event, before) or _describe_log(event)
    if found is not None:
        yield msgspec.structs.replace(entry, **found)
    if isinstance(event, e.Resumed | e.RunEnded):
        for item in before.calls.batch.pending:
            is_told = isinstance(event, e.Resumed) or _has_effect(before, item.call.name)
            if item.running and is_told and item.has_started:
                yield msgspec.structs.replace(
                    entry,
                    kind="in doubt",
                    tool=item.call.name,
                    call_id=item.call.id,
                    arguments=item.arguments,
                    reason=DOUBT,
                )


Fields = dict[str, str]


def _describe_call(event: e.Event, before: State) -> Fields | None:
    """Fields of an entry about a tool call."""
    policy = hash_policy(before.settings.policy)
    match event:
        case e.ApprovalAsked(call_id=call, name=tool, arguments=arguments, rule=rule):
            return {
                "kind": "asked", "tool": tool, "call_id": call, "arguments": arguments, "rule": rule, "policy": policy,
                "reason": DOUBT if event.question == "in_doubt" else "",
            }  # fmt: skip
        case e.ApprovalAnswered(call_id=call, name=tool, asked_arguments=arguments):
            return {
                "kind": ANSWER_KINDS[event.answer], "by": event.by, "tool": tool, "call_id": call,
                "arguments": arguments, "edited_arguments": event.arguments or "", "reason": event.reason,
                "rule": _asked_rule(before, call), "policy": policy,
            }  # fmt: skip
        case e.CallReviewed(call_id=call, name=tool, arguments=arguments, discards_approval=True):
            reason = "the approval in the log has no valid proof; the question is asked again"
            return {
                "kind": "approval discarded", "tool": tool, "call_id": call, "arguments": arguments, "reason": reason,
            }  # fmt: skip
        case e.ToolStarted(call_id=call, name=tool, arguments=arguments) if _has_effect(before, tool):
            return {
                "kind": "effect", "tool": tool, "call_id": call, "arguments": arguments, "key": event.key,
                "rule": event.rule, "policy": policy, "outcome": f"attempt {event.attempt}",
            }  # fmt: skip
        case e.ToolFinished(name=tool, rule=rule, source=source) if (
            _has_effect(before, tool)
            or source in ("probe", "person", "hook")
            or event.result.outcome == "denied"
        ):
            return {
                "kind": "denied" if event.result.outcome == "denied" else "result", "tool": tool,
                "call_id": event.call_id, "outcome": event.result.outcome, "rule": rule, "policy": policy,
                "by": "" if source == "run" else source,
            }  # fmt: skip
        case e.ToolProbed(call_id=call, name=tool):
            return {"kind": "in doubt", "tool": tool, "call_id": call, "outcome": "a probe found no effect"}
        case e.ToolInterrupted(call_id=call, name=tool, why=why):
            return {"kind": "in doubt", "tool": tool, "call_id": call, "reason": why}
        case e.CompensationStarted(call_id=call, name=tool):
            return {"kind": "compensation", "tool": tool, "call_id": call, "key": event.key}
        case e.CompensationFinished(call_id=call):
            return {"kind": "compensation", "call_id": call, "outcome": event.result.outcome}
    return None


def _describe_run(event: e.Event, before: State) -> Fields | None:
    """Fields of an entry about a run."""
    match event:
        case e.Prompted(caller=caller, tenant=tenant):
            return {"kind": "prompted", "by": caller, "outcome": f"tenant {tenant}" if tenant else ""}
        case e.Resumed():
            was_left = before.phase in UNFINISHED_PHASES
            return {
                "kind": "taken over" if was_left or event.took_over else "resumed",
                "reason": TAKEN_FROM_LIVE if event.took_over else TAKEN_FROM_ENDED if was_left else "",
            }
        case e.Configured(handed_over_to=agent) if agent:
            return {"kind": "handed over", "by": agent}
        case e.HookDecided(hook=hook, action=action) if action != "continue":
            calls = (item for item in before.calls.batch.pending if item.call.id == event.call_id)
            tool, arguments = next(((item.call.name, item.arguments) for item in calls), ("", ""))
            return {
                "kind": "hook", "by": hook, "outcome": f"{action} at {event.point}", "reason": event.reason,
                "tool": tool, "call_id": event.call_id, "arguments": arguments,
                "edited_arguments": event.arguments or "",
            }  # fmt: skip
        case SubrunStarted(call_id=call, session=session, name=tool):
            return {"kind": "subrun", "tool": tool, "call_id": call, "session": session}
        case SubrunWaiting(call_id=call, session=session, name=tool):
            return {"kind": "subrun waits", "tool": tool, "call_id": call, "session": session}
        case e.Steered(message=message, by=by):
            return {"kind": "steered", "by": by, "reason": message}
        case e.PauseRequested(reason=reason, by=by):
            return {"kind": "pause requested", "by": by, "reason": reason}
        case e.RunEnded(stop=stop, reason=reason, by=by):
            return {"kind": "ended", "outcome": stop, "reason": reason, "by": by}
    return None


def _describe_log(event: e.Event) -> Fields | None:
    """Fields of an entry about the log itself."""
    match event:
        case e.Forked(parent=parent, at=at):
            return {"kind": "forked", "session": parent, "outcome": f"shares {at} records"}
        case e.ContentRedacted(record=seq, field=field, reason=reason, by=by, digest=digest):
            what = field or "all content"
            return {
                "kind": "redacted",
                "by": by,
                "outcome": f"{what} of record {seq}",
                "reason": reason,
                "key": digest,
            }
        case e.ControlRefused(action=action, why=why, by=by):
            return {"kind": "request refused", "by": by, "outcome": action, "reason": why}
        case e.LogRepaired(items=items):
            return {"kind": "repaired", "reason": "; ".join(items)}
        case e.Imported(messages=messages):
            return {"kind": "history imported", "outcome": f"{len(messages)} messages"}
    return None


def _has_effect(state: State, tool: str) -> bool:
    spec = state.settings.find_tool(tool)
    return spec is None or spec.effect != "read"


def _asked_rule(state: State, call_id: str) -> str:
    for item in state.calls.batch.pending:
        if item.call.id == call_id and item.unanswered_question is not None:
            return item.unanswered_question.rule
    return ""
