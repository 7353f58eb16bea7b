"""Assembles the next request.

The order is fixed: tools, system, memory, history, current message (docs/prompt_layers.py). Each request extends the
previous one byte for byte, because a changed prefix is a cache miss and costs money. So nothing here may
depend on the time or the step; options that change from step to step (tool choice, output limit) are outside
the prefix.

Options that a model would reject are resolved before sending (model_constraints.py) and noted once per run.

The prompt head (tools and instructions) is shared by all sessions of an agent: changing a word of it
invalidates every cached prompt. `prompt_head_lines` renders it line by line, in the order sent, for
comparison and lockfiles. Schemas are indented but never sorted, because field order is part of the prompt.
Model, budget and session data are not included.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b

from msgspec.structs import replace

from bridle.core.budget.hosted import list_unlimited_uses
from bridle.core.budget.limits import output_tokens_room
from bridle.core.cache.breakpoints import cache_key, place_breakpoints
from bridle.core.cache.tracking import ServerConversation
from bridle.core.calls.catalogue import filter_offered_tools, list_withheld_reasons, split_deferred_tools
from bridle.core.state import State
from bridle.values.events import OptionsChosen
from bridle.values.message import Message, Opaque, Reasoning, Text, ToolCall
from bridle.values.model import Endpoint, Model
from bridle.values.request import OutputSpec, Request, StepOptions, Thinking, ToolChoice, ToolSpec
from bridle.values.settings import Settings

from .head_edits import HeadEditor
from .model_constraints import FREE, apply_model_constraints, settled_losses
from .token_estimate import written_instructions


def assemble_request(state: State, choice: ToolChoice | None = None) -> tuple[Request, tuple[str, ...]]:
    """The request, and the changes that made it acceptable."""
    settings = state.settings
    tools, deferred = request_tools(state)
    revealed = _revealed_specs(settings, state.tools.revealed) if state.tools.revealed else ()
    effective = replace(settings, tools=(*settings.tools, *revealed)) if revealed else settings
    refused = state.run.refusals.refused_parameters
    options = apply_model_constraints(
        effective,
        _release_forced_choice(state, choice or step_tool_choice(state)),
        unproven=settings.thinking is not None and _is_reasoning_missing(state),
        left_out=refused,
    )
    cached = "cache" not in refused
    output_tokens = output_tokens_room(state)
    system = system_prompt(state)
    # defect: answer-type-sent
    output = settings.output if settings.output and settings.output.mode == "native" else None
    messages, sampling = state.conversation.view, options.sampling
    if state.conversation.head_edits:
        editor = HeadEditor(state.conversation.head_edits)
        output, messages = editor.edit_output(output), editor.edit_summary(messages)
        sampling = editor.edit_sampling(sampling)
    request = Request(
        model=settings.model,
        system=system,
        tools=tools,
        deferred_tools=deferred,
        messages=messages,
        tool_choice=options.tool_choice,
        max_tokens=output_tokens,
        output=output,
        thinking=_fit_thinking_budget(options.thinking, output_tokens, settings.model)
        if options.thinking is not None
        else None,
        sampling=sampling,
        breakpoints=place_breakpoints(
            settings,
            tools,
            state.conversation.view,
            # More than the instructions, which all sessions of the agent share.
            remembers=len(system) > len(settings.instruction_texts),
        )
        if cached
        else (),
        cache_key=prompt_cache_key(state),
        compare_reply_id=previous_reply_id(state) if cached and _can_explain_misses(settings.model) else "",
        extras=options.extras,
    )
    notes = options.notes
    if settings.chain:
        request = _refer_to_server_state(state, request)
        notes = (*notes, *_note_missing_conversation(state))
    if request.thinking is not options.thinking:
        notes = (*notes, *_note_thinking_budget(options.thinking, request.thinking))
    return request, (*_list_new_notes(state, notes), *options.step_notes) if notes else options.step_notes


def _list_new_notes(state: State, notes: tuple[str, ...]) -> tuple[str, ...]:
    recorded, now = state.run.adjustments.recorded_notes, state.run.adjustments.adjusted_now
    return tuple(note for note in notes if note not in recorded or note in now)


def prompt_cache_key(state: State) -> str:
    """Key of the cached prompt; empty if none is sent."""
    if not state.settings.model.abilities.cache_key:
        return ""
    refused = "cache" in state.run.refusals.refused_parameters
    return "" if refused else cache_key(state.settings, state.run.origin.tenant, state.identity.id)


def _is_reasoning_missing(state: State) -> bool:
    """True if results are sent whose tool loop does not open with reasoning that the endpoint accepts.

    A tool loop is one turn of the model: its reasoning is at the start of its first message, and a new prompt
    starts another turn. A prompt that directly follows results is sent in one message with them, so an
    endpoint that rejected the reasoning once in this run may reject it there too.
    """
    view = state.conversation.view
    last = next((at for at in range(len(view) - 1, -1, -1) if view[at].role == "assistant"), -1)
    newer = {message.role for message in view[last + 1 :]}
    if last < 0 or "tool" not in newer:
        return False
    if state.run.refusals.reasoning_status == "left out":
        return True
    turn_start = next((at for at in range(last, -1, -1) if view[at].role == "user"), -1)
    head = next(message for message in view[turn_start + 1 :] if message.role == "assistant")
    return "user" not in newer and not _opens_with_reasoning(head, state.settings.model.endpoint)


def _opens_with_reasoning(message: Message, endpoint: Endpoint) -> bool:
    """True if the message is sent with reasoning first: only to its origin, and by the endpoint's policy."""
    written = (part for part in message.parts if not isinstance(part, Text) or part.text.strip())
    first, origin = next(written, None), message.origin
    if not isinstance(first, Reasoning) or endpoint.reasoning == "strip" or origin is None:
        return False
    if (origin.family, origin.endpoint) != (endpoint.family, endpoint.endpoint_id):
        return False
    return endpoint.reasoning != "signed" or bool(first.signature)


def _can_explain_misses(model: Model) -> bool:
    """True if cache misses can be explained; an endpoint with a custom URL may not know the option."""
    return model.abilities.cache_explained and not model.endpoint.custom_address


UNSENT_INSTRUCTIONS = "the imported system prompt is not sent: the agent has instructions of its own"


def list_unsent_options(
    state: State, choice: ToolChoice | None = None, notes: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Requested options that the next request lacks and that this run has not recorded yet.

    `notes` are those of the request: if no adjustment is accepted (`on_adjusted="error"`), each of them counts.
    """
    settings, refused = state.settings, state.run.refusals.refused_parameters
    imported = state.conversation.imported_instructions
    is_plain = settings.has_fixed_tools and not settings.extras and not refused and not imported
    if is_plain and not notes and (choice or settings.tool_choice) == FREE:
        return ()
    requested = _release_forced_choice(state, choice or step_tool_choice(state))
    withheld = list_withheld_reasons(state, visible_tools(state.settings, state.tools.revealed))
    losses = (*settled_losses(settings, requested, refused, notes), *withheld)
    if settings.hosted_tools:
        losses += list_unlimited_uses(state)
    if imported and imported != settings.instructions:
        losses += (UNSENT_INSTRUCTIONS,)
    return (
        tuple([note for note in losses if note not in state.run.adjustments.recorded_notes]) if losses else ()
    )


def find_step_options(state: State, step: int) -> StepOptions | None:
    """Options that functions chose for this step."""
    recorded = state.run.adjustments.step_options
    return recorded if recorded is not None and recorded.step == step else None


def use_step_options(state: State, step: int) -> State:
    """The state with the thinking and the sampling that functions chose for a step."""
    chosen = find_step_options(state, step)
    if chosen is None:
        return state
    return replace(
        state, settings=replace(state.settings, thinking=chosen.thinking, sampling=chosen.sampling)
    )


def apply_options_chosen(state: State, event: OptionsChosen, at: float, proof: str) -> State:
    adjustments = replace(state.run.adjustments, step_options=event.options)
    return replace(state, run=replace(state.run, adjustments=adjustments))


def step_tool_choice(state: State) -> ToolChoice:
    """The agent's tool choice at this step: a call is forced until the model has made it, or at every step."""
    choice = state.settings.tool_choice
    released = choice.mode in ("any", "tool") and not choice.every_step and _has_forced_call(state, choice)
    return ToolChoice(parallel=choice.parallel) if released else choice


def _has_forced_call(state: State, choice: ToolChoice) -> bool:
    """True if the model has made the call in this run, or the provider has run a tool of its own."""
    prompts = state.conversation.prompt_ids[-1:]
    for message in reversed(state.conversation.transcript.messages):
        if message.id in prompts:
            return False
        if any(choice.mode == "any" or call.name == choice.name for call in message.calls):
            return True
        if message.role == "assistant" and any(isinstance(part, Opaque) for part in message.parts):
            return True
    return False


def _release_forced_choice(state: State, choice: ToolChoice) -> ToolChoice:
    """The choice without forcing once the model was asked to finish: a forced call would prevent an answer."""
    forced = choice.mode in ("any", "tool") and state.settings.output is None
    return replace(choice, mode="auto", name="") if state.run.budget.wrap_up_reason and forced else choice


def system_prompt(state: State) -> tuple[Text, ...]:
    """Instructions of the agent, the notes of tenant, caller and session, and the instructions written for the session.

    In this order, the beginning is shared by as many sessions as possible.
    """
    settings = state.settings
    system = settings.instruction_texts
    if settings.memory is not None or settings.session_functions:
        written = written_instructions(state) if settings.session_functions else ""
        # defect: notes-sent
        system = (*system, *(Text(text=text) for text in (memory_text(state), written) if text))
    edits = state.conversation.head_edits
    return HeadEditor(edits).edit_texts(system) if edits else system


def memory_text(state: State) -> str:
    return state.memory.text if state.settings.memory is not None else ""


def request_tools(state: State) -> tuple[tuple[ToolSpec, ...], tuple[ToolSpec, ...]]:
    """Tools inside the prompt of the next request, and deferred tools outside it."""
    # defect: tools-order
    tools, deferred = state.settings.tools, tuple[ToolSpec, ...]()
    if not state.settings.has_fixed_tools or state.tools.revealed:
        tools, deferred = split_deferred_tools(state, offered_tools(state))
    if not state.conversation.head_edits:
        return tools, deferred
    editor = HeadEditor(state.conversation.head_edits)
    return editor.edit_tools(tools), editor.edit_tools(deferred)


def offered_tools(state: State) -> tuple[ToolSpec, ...]:
    """Visible tools that are sent to the current model."""
    return filter_offered_tools(state, visible_tools(state.settings, state.tools.revealed))


def visible_tools(settings: Settings, shown: tuple[str, ...]) -> tuple[ToolSpec, ...]:
    """Tools visible to the model, in the order they became visible; later ones never move earlier ones."""
    if settings.output is None and not shown:
        return settings.tools
    # defect: found-tool-offered
    return (*settings.tools, *_output_tool(settings.output), *_revealed_specs(settings, shown))


def callable_tools(state: State) -> Mapping[str, ToolSpec]:
    """Tools that the model may call, the output tool included, hosted tools excluded.

    Every tool of a catalogue is callable, even if not revealed: models remember names.
    """
    settings = state.settings
    if settings.output is None and settings.catalogue is None and not state.tools.revealed:
        return settings.callable_tools
    shown = visible_tools(state.settings, state.tools.revealed)
    if state.settings.catalogue is not None:
        shown = (*shown, *state.settings.hidden_tools)
    return {spec.name: spec for spec in shown if spec.native is None}


def _revealed_specs(settings: Settings, shown: tuple[str, ...]) -> tuple[ToolSpec, ...]:
    if not shown:
        return ()
    hidden = {spec.name: spec for spec in settings.hidden_tools}
    return tuple(hidden[name] for name in shown if name in hidden)


def _output_tool(output: OutputSpec | None) -> tuple[ToolSpec, ...]:
    if output is None or output.mode != "tool" or not output.name:
        return ()
    description = output.description or "Give your final answer by calling this."
    return (ToolSpec(name=output.name, description=description, parameters=output.parameters),)


def _fit_thinking_budget(thinking: Thinking | None, output_tokens: int, model: Model) -> Thinking | None:
    """Thinking that leaves room for an answer: providers reject an allowance as large as the whole reply."""
    if thinking is None or thinking.budget_tokens is None or thinking.budget_tokens < output_tokens:
        return thinking
    allowance = output_tokens // 2
    enough = allowance >= model.abilities.allowance_least
    return replace(thinking, budget_tokens=allowance) if enough else None


def _note_thinking_budget(wanted: Thinking | None, sent: Thinking | None) -> tuple[str, ...]:
    if sent == wanted or wanted is None:
        return ()
    if sent is None:
        return ("thinking was left out: the reply has no room for the smallest allowance",)
    return ("the allowance for thinking became half of what the reply may have, which is less",)


def relies_on_server_state(state: State) -> bool:
    """True if the request in progress refers to state held by the provider instead of sending it."""
    conversation = state.cache.server_conversation
    return bool(_chained_reply_id(state)) or (
        conversation is not None and conversation.in_flight and bool(conversation.reply_id)
    )


def _chained_reply_id(state: State) -> str:
    """Id of the newest reply of this endpoint, which has everything up to there if it stores replies."""
    if state.settings.chain is not True or state.run.refusals.server_state_lost:
        return ""
    # Replies from before the chain was enabled were not stored by the provider.
    replies = [
        each
        for each in state.conversation.transcript.messages[state.cache.chained_from :]
        if each.role == "assistant"
    ]
    return previous_reply_id(state) if replies and has_distinct_call_ids(replies[-1].calls) else ""


def has_distinct_call_ids(calls: tuple[ToolCall, ...]) -> bool:
    """True if the provider's own ids distinguish these calls.

    A repeated or missing id is replaced by one of ours, which the provider's stored state does not know.
    """
    ids = [call.wire_id for call in calls]
    return all(ids) and len(set(ids)) == len(ids)


def _refer_to_server_state(state: State, request: Request) -> Request:
    """The request with what the provider stores in place of the messages that it has."""
    conversation = _usable_conversation(state)
    return replace(
        request,
        keeps_server_state=state.settings.chain is True or conversation is not None,
        conversation=conversation.name if conversation else "",
        server_state_until=conversation.reply_id if conversation else _chained_reply_id(state),
    )


def _usable_conversation(state: State) -> ServerConversation | None:
    """The conversation object that the next request is added to; None if there is none."""
    conversation, settings = state.cache.server_conversation, state.settings
    usable = (
        conversation is not None
        and conversation.name
        and conversation.model_key == settings.model.model_key
        and not conversation.unusable_reason
    )
    return conversation if usable and settings.chain == "conversation" else None


def _note_missing_conversation(state: State) -> tuple[str, ...]:
    """A note if the provider was asked for a conversation object and has made none."""
    conversation, settings = state.cache.server_conversation, state.settings
    missing = (
        settings.chain == "conversation"
        and conversation is not None
        and not conversation.name
        and conversation.model_key == settings.model.model_key
    )
    at = settings.model.endpoint.name
    return (
        (f"the conversation is sent whole: {at} has made no conversation object (chain)",) if missing else ()
    )


def previous_reply_id(state: State) -> str:
    """This endpoint's id of the previous reply, if it came from it on the same wire."""
    endpoint = state.settings.model.endpoint
    for message in reversed(state.conversation.view):
        if message.role == "assistant":
            origin = message.origin
            known = origin and (origin.family, origin.endpoint) == (endpoint.family, endpoint.endpoint_id)
            return message.reply_id if known and not _has_changed_before(state, message) else ""
    return ""


def _has_changed_before(state: State, message: Message) -> bool:
    """True if anything up to this message was changed since: the provider has the old version."""
    conversation = state.conversation
    if not conversation.stale_ranges:
        return False
    at = next((at for at, each in enumerate(conversation.transcript.messages) if each.id == message.id), 0)
    return any(first <= at < last for first, last in conversation.stale_ranges)


def limit_output(request: Request, output_tokens_max: int) -> Request:
    """The same request with at most this many output tokens."""
    output_tokens = min(request.max_tokens or output_tokens_max, output_tokens_max)
    return replace(
        request,
        max_tokens=output_tokens,
        thinking=_fit_thinking_budget(request.thinking, output_tokens, request.model),
    )


HEAD_DIGEST_BYTES = 16


def prompt_head_lines(settings: Settings) -> tuple[str, ...]:
    """Tools, then instructions, line by line; hidden tools come after the visible ones."""
    tools = (*visible_tools(settings, ()), *settings.hidden_tools)
    lines = [line for spec in tools for line in _tool_lines(spec)]
    return (*lines, *_titled_lines("system", settings.instructions))


def digest_lines(lines: Sequence[str]) -> str:
    return blake2b("\n".join(lines).encode(), digest_size=HEAD_DIGEST_BYTES).hexdigest()


def _tool_lines(spec: ToolSpec) -> Iterator[str]:
    yield from _titled_lines(f"tool {spec.name}", spec.description)
    yield from _titled_lines(f"tool {spec.name} takes", _indent_schema(spec.native or spec.parameters))


def _titled_lines(title: str, text: str) -> Iterator[str]:
    if text:
        yield f"{title}:"
        yield from (f"  {line}" for line in text.split("\n"))


def _indent_schema(schema: str) -> str:
    try:
        return json.dumps(json.loads(schema), indent=2, ensure_ascii=False)
    except ValueError:
        return schema
