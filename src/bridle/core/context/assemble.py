"""Assemble the next request.

The order is fixed: tools, system, memory, history, current message (layers.py).  Each request extends
the one before it byte for byte, because a moved prefix is a missed cache and a missed
cache is money.  So nothing here may depend on the time, the step or the weather; what
changes from step to step (tool choice, room for output) is outside the prefix.

What a model would refuse is settled before it is sent (settling.py), and noted once a run.
"""

import json
from collections.abc import Iterator, Sequence
from hashlib import blake2b

from msgspec.structs import replace

from bridle.core.budget.limits import output_tokens_room
from bridle.core.cache.breakpoints import cache_key, place_breakpoints
from bridle.core.cache.tracking import ServerConversation
from bridle.core.calls.catalogue import filter_offered_tools, list_withheld_reasons, split_deferred_tools
from bridle.core.state import State
from bridle.values.message import Message, Reasoning, Text, ToolCall
from bridle.values.model import Endpoint, Model
from bridle.values.request import OutputSpec, Request, Thinking, ToolChoice, ToolSpec
from bridle.values.settings import Settings

from .model_constraints import apply_model_constraints, settled_losses


def assemble_request(
    state: State, choice: ToolChoice | None = None, output_tokens_max: int | None = None
) -> tuple[Request, tuple[str, ...]]:
    """The request and what had to be changed to make it acceptable."""
    settings = state.settings
    tools, deferred = split_deferred_tools(state, offered_tools(state))
    later = _revealed_specs(settings, state.revealed_tools)
    among = replace(settings, tools=(*settings.tools, *later)) if later else settings
    left_out = state.run.refused_parameters
    wish = apply_model_constraints(
        among,
        _release_forced_choice(state, choice or step_tool_choice(state)),
        unproven=settings.thinking is not None and _is_reasoning_missing(state),
        left_out=left_out,
    )
    cached = "cache" not in left_out
    most = (
        output_tokens_room(state)
        if output_tokens_max is None
        else min(output_tokens_room(state), output_tokens_max)
    )
    held = _usable_conversation(state)
    request = Request(
        model=settings.model,
        system=system_prompt(state),
        tools=tools,
        deferred_tools=deferred,
        messages=state.view,
        tool_choice=wish.tool_choice,
        max_tokens=most,
        output=settings.output if settings.output and settings.output.mode == "native" else None,
        thinking=_fit_thinking_budget(wish.thinking, most, settings.model),
        sampling=wish.sampling,
        breakpoints=place_breakpoints(settings, tools, state.view, remembers=bool(memory_text(state)))
        if cached
        else (),
        cache_key=prompt_cache_key(state),
        compare_reply_id=previous_reply_id(state) if cached and _can_explain_misses(settings.model) else "",
        keeps_server_state=settings.chain is True or held is not None,
        conversation=held.name if held else "",
        server_state_until=held.reply_id if held else _chained_reply_id(state),
        extras=wish.extras,
    )
    notes = (*wish.notes, *_note_thinking_budget(wish.thinking, request.thinking))
    return request, (*(note for note in notes if note not in state.run.recorded_notes), *wish.step_notes)


def prompt_cache_key(state: State) -> str:
    """The key of the cached prompt; empty where none is sent."""
    refused = "cache" in state.run.refused_parameters
    return "" if refused else cache_key(state.settings, state.run.tenant, state.session)


def _is_reasoning_missing(state: State) -> bool:
    """Results are sent whose tool loop does not open with reasoning the endpoint takes back.

    A tool loop is one turn of the model: the reasoning stands at the head of its first message, and a new
    prompt begins another turn.  A prompt goes out in one message with results that nothing has followed,
    so an endpoint that refused the reasoning once in this run may refuse it there too.
    """
    view = state.view
    last = next((at for at in range(len(view) - 1, -1, -1) if view[at].role == "assistant"), -1)
    newer = {message.role for message in view[last + 1 :]}
    if last < 0 or "tool" not in newer:
        return False
    if state.run.reasoning_status == "left out":
        return True
    begun = next((at for at in range(last, -1, -1) if view[at].role == "user"), -1)
    head = next(message for message in view[begun + 1 :] if message.role == "assistant")
    return "user" not in newer and not _opens_with_reasoning(head, state.settings.model.endpoint)


def _opens_with_reasoning(message: Message, endpoint: Endpoint) -> bool:
    """Whether reasoning is what goes out first: only to where it came from, and by the endpoint's policy."""
    written = (part for part in message.parts if not isinstance(part, Text) or part.text.strip())
    first, origin = next(written, None), message.origin
    if not isinstance(first, Reasoning) or endpoint.reasoning == "strip" or origin is None:
        return False
    if (origin.family, origin.endpoint) != (endpoint.family, endpoint.endpoint_id):
        return False
    return endpoint.reasoning != "signed" or bool(first.signature)


def _can_explain_misses(model: Model) -> bool:
    """Whether to ask why a prompt was not found; whoever is at another address may not know the question."""
    return model.abilities.cache_explained and not model.endpoint.custom_address


def list_unsent_options(state: State, choice: ToolChoice | None = None) -> tuple[str, ...]:
    """What is asked for and is not in the next request, as far as this run has not recorded it."""
    wanted = _release_forced_choice(state, choice or step_tool_choice(state))
    withheld = list_withheld_reasons(state, visible_tools(state.settings, state.revealed_tools))
    lost = (*settled_losses(state.settings, wanted, state.run.refused_parameters), *withheld)
    return tuple([note for note in lost if note not in state.run.recorded_notes]) if lost else ()


def step_tool_choice(state: State) -> ToolChoice:
    """The agent's own tool choice at this step: a named one forces the first step, unless it says every."""
    wanted = state.settings.tool_choice
    released = wanted.mode == "tool" and not wanted.every_step and state.run.spent.steps > 0
    return ToolChoice(parallel=wanted.parallel) if released else wanted


def _release_forced_choice(state: State, wanted: ToolChoice) -> ToolChoice:
    """Whoever was told to finish must be free to: a call that is forced would keep it from answering."""
    forced = wanted.mode in ("any", "tool") and state.settings.output is None
    return replace(wanted, mode="auto", name="") if state.run.wrap_up_reason and forced else wanted


def system_prompt(state: State) -> tuple[Text, ...]:
    """Instructions, which all sessions of an agent share, and behind them the notes, which they do not."""
    return tuple(Text(text=words) for words in (state.settings.instructions, memory_text(state)) if words)


def memory_text(state: State) -> str:
    return state.memory.text if state.settings.memory is not None else ""


def offered_tools(state: State) -> tuple[ToolSpec, ...]:
    """What is sent to the current model of the tools that are shown."""
    return filter_offered_tools(state, visible_tools(state.settings, state.revealed_tools))


def visible_tools(settings: Settings, shown: tuple[str, ...]) -> tuple[ToolSpec, ...]:
    """What the model sees, in the order it came to see it: what came later never moves what was there."""
    if settings.output is None and not shown:
        return settings.tools
    return (*settings.tools, *_output_tool(settings.output), *_revealed_specs(settings, shown))


def _revealed_specs(settings: Settings, shown: tuple[str, ...]) -> tuple[ToolSpec, ...]:
    if not shown:
        return ()
    hidden = {spec.name: spec for spec in settings.hidden_tools}
    return tuple(hidden[name] for name in shown if name in hidden)


def _output_tool(output: OutputSpec | None) -> tuple[ToolSpec, ...]:
    if output is None or output.mode != "tool":
        return ()
    description = output.description or "Give your final answer by calling this."
    return (ToolSpec(name=output.name, description=description, parameters=output.parameters),)


def _fit_thinking_budget(thinking: Thinking | None, most: int, model: Model) -> Thinking | None:
    """Thinking that leaves room for an answer: providers refuse an allowance as large as the whole reply."""
    if thinking is None or thinking.budget_tokens is None or thinking.budget_tokens < most:
        return thinking
    allowance = most // 2
    enough = allowance >= model.abilities.allowance_least
    return replace(thinking, budget_tokens=allowance) if enough else None


def _note_thinking_budget(wanted: Thinking | None, sent: Thinking | None) -> tuple[str, ...]:
    if sent == wanted or wanted is None:
        return ()
    if sent is None:
        return ("thinking was left out: the reply has no room for the smallest allowance",)
    return ("the allowance for thinking became half of what the reply may have, which is less",)


def relies_on_server_state(state: State) -> bool:
    """Whether the request under way names state that the provider holds instead of sending it."""
    held = state.server_conversation
    return bool(_chained_reply_id(state)) or (held is not None and held.in_flight and bool(held.reply_id))


def _chained_reply_id(state: State) -> str:
    """The newest reply of this very endpoint: it has everything up to there, if it keeps things at all."""
    if state.settings.chain is not True or state.run.server_state_lost:
        return ""
    # A reply from before the chain was switched on was not kept by the provider.
    own = [each for each in state.transcript.messages[state.chained_from :] if each.role == "assistant"]
    return previous_reply_id(state) if own and has_distinct_call_ids(own[-1].calls) else ""


def has_distinct_call_ids(calls: tuple[ToolCall, ...]) -> bool:
    """Whether the provider can tell these calls apart by its own ids.

    We give a repeated or missing id a new one, which state held by the provider does not know.
    """
    ids = [call.wire_id for call in calls]
    return all(ids) and len(set(ids)) == len(ids)


def _usable_conversation(state: State) -> ServerConversation | None:
    """The conversation object that the next request is added to."""
    held, settings = state.server_conversation, state.settings
    usable = (
        held is not None
        and held.name
        and held.model_key == settings.model.model_key
        and not held.unusable_reason
    )
    return held if usable and settings.chain == "conversation" else None


def previous_reply_id(state: State) -> str:
    """What this very endpoint calls the reply before, if that was its own and on the same wire."""
    endpoint = state.settings.model.endpoint
    for message in reversed(state.view):
        if message.role == "assistant":
            origin = message.origin
            known = origin and (origin.family, origin.endpoint) == (endpoint.family, endpoint.endpoint_id)
            return message.reply_id if known and not _has_changed_before(state, message) else ""
    return ""


def _has_changed_before(state: State, message: Message) -> bool:
    """Whether anything up to this message was changed since: the provider keeps what stood there then."""
    if not state.stale_ranges:
        return False
    at = next((at for at, each in enumerate(state.transcript.messages) if each.id == message.id), 0)
    return any(first <= at < last for first, last in state.stale_ranges)


def limit_output(request: Request, output_tokens_max: int) -> Request:
    """The same request with no more room for the reply than this."""
    most = min(request.max_tokens or output_tokens_max, output_tokens_max)
    return replace(
        request, max_tokens=most, thinking=_fit_thinking_budget(request.thinking, most, request.model)
    )


# What an agent puts in front of every prompt, as lines that can be kept, compared and shown.
#
# Tools and instructions are what all sessions of an agent share, so whoever changes a word of them makes
# every cached prompt worthless at once.  Here they are written down one thing a line, in the order they are
# sent: a schema is spread out but never sorted, because the order of its fields is part of the prompt.
# What is about the model, the budget or one session is not in it.


HEAD_DIGEST_BYTES = 16


def prompt_head_lines(settings: Settings) -> tuple[str, ...]:
    """Tools, then instructions, line by line; tools that are only found later come last of the tools."""
    tools = (*visible_tools(settings, ()), *settings.hidden_tools)
    lines = [line for spec in tools for line in _tool_lines(spec)]
    return (*lines, *_titled_lines("system", settings.instructions))


def digest_lines(lines: Sequence[str]) -> str:
    return blake2b("\n".join(lines).encode(), digest_size=HEAD_DIGEST_BYTES).hexdigest()


def _tool_lines(spec: ToolSpec) -> Iterator[str]:
    yield from _titled_lines(f"tool {spec.name}", spec.description)
    yield from _titled_lines(f"tool {spec.name} takes", _indent_schema(spec.native or spec.parameters))


def _titled_lines(title: str, words: str) -> Iterator[str]:
    if words:
        yield f"{title}:"
        yield from (f"  {line}" for line in words.split("\n"))


def _indent_schema(schema: str) -> str:
    try:
        return json.dumps(json.loads(schema), indent=2, ensure_ascii=False)
    except ValueError:
        return schema
