"""Span attributes of settings, calls, usage and ends, in the names of the OpenTelemetry conventions.

Everything here is metadata: names, numbers and members of fixed lists. Text that a person, a model or a tool wrote
passes through `TraceContent`, which is the only way for content to enter a span.
"""

import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import lru_cache

import msgspec

from bridle.core.budget.limits import LIMIT_STOPS, add_nested_spending
from bridle.core.cache.breakpoints import agent_name
from bridle.core.cache.tracking import MISS_OUTCOMES
from bridle.core.context.assemble import use_step_options
from bridle.core.state import State
from bridle.values import events as e
from bridle.values.message import Media, Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from bridle.values.model import Endpoint, Model
from bridle.values.record import Attributes
from bridle.values.settings import Settings
from bridle.values.usage import Budget, Limits, Usage

OPERATION, CHAT, INVOKE_AGENT, EXECUTE_TOOL = "gen_ai.operation.name", "chat", "invoke_agent", "execute_tool"
MODEL, ERROR_TYPE, COST = "gen_ai.request.model", "error.type", "bridle.cost.usd"
BUDGET_USE = "bridle.budget.use."
"""Start of the attributes with the used shares of the limits of a run."""
HOST = re.compile(r"\w+://(?:[^/@]*@)?([^/:?#]+)")
FAILED_STOPS = ("failed", "no_progress", "context")
"""Ends of a run that are errors; limits, refusals and cancelled runs are expected."""

TraceContent = Callable[[str], str] | None
"""Prepares a text for export: redacts and shortens it. None: no content is exported."""


def run_attributes(session: str, state: State, prompted: e.Prompted) -> Attributes:
    """Attributes of the span of a run, known when it starts."""
    found = agent_attributes(state.settings) | {OPERATION: INVOKE_AGENT, "gen_ai.conversation.id": session}
    for name, value in (
        ("bridle.tenant", prompted.tenant),
        ("bridle.parent.session", prompted.parent_session),
        ("bridle.parent.call_id", prompted.parent_call_id),
    ):
        if value:
            found[name] = value
    return found | budget_attributes(prompted.budget)


def agent_attributes(settings: Settings) -> Attributes:
    model = {} if settings.model.endpoint.is_program else model_attributes(settings.model)
    return {"gen_ai.agent.name": agent_name(settings), **model}


def owner_attributes(state: State) -> Attributes:
    """The agent that makes a model call, and the tenant it is for."""
    tenant = state.run.origin.tenant
    named: Attributes = {"gen_ai.agent.name": agent_name(state.settings)}
    return named | {"bridle.tenant": tenant} if tenant else named


def budget_attributes(budget: Budget) -> Attributes:
    limits = ((kind, getattr(budget, kind)) for kind in Limits.__struct_fields__)
    return {
        f"bridle.budget.{kind}": float(limit) if isinstance(limit, Decimal) else limit
        for kind, limit in limits
        if limit is not None
    }


def model_attributes(model: Model) -> Attributes:
    endpoint = model.endpoint
    found: Attributes = {"gen_ai.provider.name": provider_name(endpoint), MODEL: model.id}
    if host := find_host(endpoint.base_url):
        found["server.address"] = host
    return found


@lru_cache(64)
def find_host(url: str) -> str:
    found = HOST.match(url)
    return found[1] if found else ""


def provider_name(endpoint: Endpoint) -> str:
    """Name of the endpoint, or of the wire family that a simulated endpoint imitates."""
    return endpoint.family if endpoint.simulated else endpoint.name


def request_attributes(event: e.ModelAsked, state: State, model: Model) -> Attributes:
    """Attributes of a model call, known when its request is sent."""
    found = {OPERATION: CHAT, **model_attributes(model), "bridle.step": event.step}
    found["bridle.attempt"] = event.attempt
    if event.max_tokens is not None:
        found["gen_ai.request.max_tokens"] = event.max_tokens
    sampling = (state if event.summarizes_until else use_step_options(state, event.step)).settings.sampling
    for name in ("temperature", "top_p", "top_k"):
        if (value := getattr(sampling, name)) is not None:
            found[f"gen_ai.request.{name}"] = value
    if event.summarizes_until:
        found["bridle.summary"] = True
    change = state.cache.history.prefix_change
    if change is not None and not event.summarizes_until:
        found["bridle.cache.prefix_moved"] = f"{change.layer}: {change.cause}"
    return found


def reply_attributes(event: e.ModelReplied, after: State) -> Attributes:
    """Attributes of a model call, known from its reply."""
    reply = event.reply
    found: Attributes = {
        "gen_ai.response.model": reply.origin.model,
        "gen_ai.response.finish_reasons": (str(reply.stop.value),),
    }
    if reply.id:
        found["gen_ai.response.id"] = reply.id
    if reply.calls:
        found["bridle.reply.tool_calls"] = len(reply.calls)
    recent = after.cache.history.recent
    if recent and not event.summarizes_until:
        call = recent[-1]
        found["bridle.cache.outcome"] = call.outcome
        if call.outcome in MISS_OUTCOMES:
            found["bridle.cache.missed_tokens"] = call.missed_tokens
    return found


def usage_attributes(usage: Usage, usd: Decimal | None) -> Attributes:
    """Tokens by cache state, and dollars. By convention the input includes what was cached."""
    found: Attributes = {
        "gen_ai.usage.input_tokens": usage.prompt,
        "gen_ai.usage.output_tokens": usage.output,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write,
    }
    if usage.reasoning:
        found["gen_ai.usage.reasoning.output_tokens"] = usage.reasoning
    if usage.incomplete:
        found["bridle.usage.incomplete"] = True
    if usd is not None:
        found[COST] = float(usd)
    return found


def latency_attributes(latency: e.Latency | None) -> Attributes:
    if latency is None or latency.first_token_seconds is None:
        return {}
    return {"gen_ai.response.time_to_first_chunk": latency.first_token_seconds}


def end_attributes(event: e.RunEnded, after: State) -> Attributes:
    """Totals of a run so far, of its own calls and of those of runs inside its tools."""
    used = after.run.budget
    own, nested = used.spent, used.nested_spent
    found: Attributes = {
        "bridle.stop": event.stop,
        "bridle.run.steps": own.steps,
        "bridle.run.tool_calls": own.tool_calls,
        "bridle.run.input_tokens": own.usage.prompt,
        "bridle.run.cache_read_tokens": own.usage.cache_read,
        "bridle.run.cache_write_tokens": own.usage.cache_write,
        "bridle.run.output_tokens": own.usage.output,
    }
    if own.usd is not None:
        found["bridle.run.cost.usd"] = float(own.usd)
    if used.subruns:
        found["bridle.subruns"] = len(used.subruns)
        found["bridle.subruns.tokens"] = nested.usage.total
        if nested.usd is not None:
            found["bridle.subruns.cost.usd"] = float(nested.usd)
    if event.stop in LIMIT_STOPS:
        found["bridle.budget.exceeded"] = event.stop
    for kind, share in list_budget_use(after):
        found[f"{BUDGET_USE}{kind}"] = share
    if used.wrap_up_reason:
        found["bridle.budget.wrapped_up"] = True
    if used.tool_call_limit:
        found["bridle.budget.tool_call_limit"] = used.tool_call_limit
    return found


def list_budget_use(state: State) -> list[tuple[str, float]]:
    """The shares of the limits of a run that are used, by kind; runs inside its tools count."""
    used, limits = state.run.budget, state.run.budget.limits
    spent = add_nested_spending(used.spent, used.nested_spent)
    amounts: tuple[tuple[str, Decimal | float | None], ...] = (
        ("usd", spent.usd),
        ("tokens", spent.usage.total),
        ("steps", spent.steps),
        ("tool_calls", spent.tool_calls),
        ("seconds", used.seconds),
    )
    found = ((kind, amount, getattr(limits, kind)) for kind, amount in amounts)
    return [
        (kind, float(amount) / float(limit)) for kind, amount, limit in found if limit and amount is not None
    ]


def describe_messages(role: str, parts: Iterable[Part], content: Callable[[str], str]) -> str:
    """Messages as JSON in the form of the conventions; media without their data."""
    return encode_json([{"role": role, "parts": [_describe_part(part, content) for part in parts]}])


def describe_parts(parts: Iterable[Part], content: Callable[[str], str]) -> str:
    return encode_json([_describe_part(part, content) for part in parts])


def encode_json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _describe_part(part: Part, content: Callable[[str], str]) -> dict[str, object]:
    match part:
        case Text(text=text):
            return {"type": "text", "content": content(text)}
        case Reasoning(text=text):
            return {"type": "reasoning", "content": content(text)}
        case ToolCall(id=id_, name=name, arguments=arguments):
            return {"type": "tool_call", "id": id_, "name": content(name), "arguments": content(arguments)}
        case ToolResult(call_id=call_id, text=text):
            return {"type": "tool_call_response", "id": call_id, "response": content(text)}
        case Media(kind=kind, media_type=media_type):
            return {"type": "blob", "modality": kind, "mime_type": media_type}
        case Opaque(kind=kind):
            return {"type": kind}
