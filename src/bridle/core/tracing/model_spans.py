"""Spans of model calls, of the waits between attempts, of compaction and of stored prompts."""

from decimal import Decimal

from bridle.core.budget.limits import billable_usage, price_partial_reply
from bridle.core.compaction.summary import state_for_summarizer
from bridle.core.state import State
from bridle.values import events as e
from bridle.values.cache import PromptStored
from bridle.values.record import Attributes
from bridle.values.usage import Usage

from . import attributes as a
from .open_trace import Moment, OpenSpan, OpenTrace

LOST = "lost"
"""The process ended before the outcome of the call was recorded."""


def begin_model_call(trace: OpenTrace, event: e.ModelAsked, moment: Moment) -> None:
    if trace.agent is None or moment.before.settings.model.endpoint.is_program:
        return
    if trace.model_call is not None:
        close_model_call(trace, trace.last_at, Usage(incomplete=True), None, LOST)
    is_turn = not event.summarizes_until
    parent = trace.open_turn(moment.at, event.step) if is_turn else _open_compaction(trace, moment)
    if trace.failed_at is not None:
        _emit_retry(trace, event, moment, parent)
    model = state_for_summarizer(moment.before, event.model_key).settings.model
    found = a.request_attributes(event, moment.before, model)
    found["gen_ai.conversation.id"] = trace.session
    found |= a.owner_attributes(moment.before)
    name = f"{a.CHAT} {model.id}"
    trace.model_call = trace.open(("chat", moment.record.seq), name, moment.at, found, parent, "client")


def _emit_retry(trace: OpenTrace, event: e.ModelAsked, moment: Moment, parent: OpenSpan) -> None:
    """Emit the wait since the last attempt failed."""
    found: Attributes = {
        "bridle.attempt": event.attempt,
        "bridle.retry.after": event.after_failure or "",
        "bridle.retry.wait_seconds": event.wait_seconds,
        "bridle.retry.wait_source": event.wait_source,
    }
    span = trace.open(("retry", moment.record.seq), "retry", trace.failed_at or moment.at, found, parent)
    trace.close(span, moment.at)
    trace.failed_at = None


def finish_model_call(trace: OpenTrace, event: e.ModelReplied, moment: Moment) -> None:
    call = trace.model_call
    if call is None:
        return
    call.attributes.update(a.reply_attributes(event, moment.after))
    call.attributes.update(a.latency_attributes(event.latency))
    if trace.content is not None:
        call.attributes["gen_ai.output.messages"] = a.describe_messages(
            "assistant", event.reply.parts, trace.content
        )
    close_model_call(trace, moment.at, billable_usage(moment.before, event.reply), event.usd)


def fail_model_call(trace: OpenTrace, event: e.ModelFailed, moment: Moment) -> None:
    if trace.agent is None or moment.before.settings.model.endpoint.is_program:
        return
    failure, usage = event.failure, Usage()
    usd: Decimal | None = Decimal(0)
    if trace.model_call is None:  # nothing was sent
        found = {a.OPERATION: a.CHAT, **a.model_attributes(moment.before.settings.model)}
        name = f"{a.CHAT} {moment.before.settings.model.id}"
        parent = trace.turn or trace.agent
        trace.model_call = trace.open(("chat", moment.record.seq), name, moment.at, found, parent, "client")
    elif event.usage is not None:
        usage, usd = price_partial(moment.before, event.usage, event.usd)
    if failure.status is not None:
        trace.model_call.attributes["http.response.status_code"] = failure.status
    trace.model_call.attributes.update(a.latency_attributes(event.latency))
    close_model_call(trace, moment.at, usage, usd, failure.kind, failure.message)
    trace.failed_at = moment.at


def close_model_call(
    trace: OpenTrace,
    at: float,
    usage: Usage,
    usd: Decimal | None,
    error: str = "",
    text: str = "",
    *,
    is_error: bool = True,
) -> None:
    call, trace.model_call = trace.model_call, None
    assert call is not None
    if error == LOST:
        call.attributes["bridle.usage.incomplete"] = True
    else:
        call.attributes.update(a.usage_attributes(usage, usd))
    if error and not is_error:
        call.attributes["bridle.interrupted"] = error
    trace.close(call, at, error if is_error else "", text)


def price_partial(before: State, usage: Usage, usd: Decimal | None) -> tuple[Usage, Decimal | None]:
    """Usage and cost of a call that broke off, as the ledger counts them."""
    key = before.run.compaction.summary.summarizer_key
    return price_partial_reply(state_for_summarizer(before, key), usage, usd)


def record_stored_prompt(trace: OpenTrace, event: PromptStored, moment: Moment) -> None:
    usage = Usage(input=event.tokens) if event.created else Usage()
    owner = a.owner_attributes(moment.before)
    found = {**owner, **a.usage_attributes(usage, event.usd), "bridle.prompt.created": event.created}
    key = ("stored", moment.record.seq)
    trace.close(trace.open(key, "store_prompt", moment.at, found, trace.agent), moment.at)


def _open_compaction(trace: OpenTrace, moment: Moment) -> OpenSpan:
    if trace.compaction is None:
        key = ("compaction", moment.record.seq)
        trace.compaction = trace.open(key, "compaction", moment.at, {}, trace.agent)
    return trace.compaction


def finish_compaction(trace: OpenTrace, event: e.Compacted, moment: Moment) -> None:
    span, trace.compaction = trace.compaction, None
    span = span or trace.open(("compaction", moment.record.seq), "compaction", moment.at, {}, trace.agent)
    span.attributes.update({
        "bridle.compaction.strategies": event.strategies,
        "bridle.compaction.before_tokens": event.before_tokens,
        "bridle.compaction.after_tokens": event.after_tokens,
        "bridle.compaction.uncached_tokens": event.uncached_tokens,
    })  # fmt: skip
    if trace.content is not None:
        span.attributes["bridle.compaction.why"] = trace.content(event.why)
        if event.summary:
            span.attributes["bridle.compaction.summary"] = trace.content(event.summary)
    trace.close(span, moment.at)
