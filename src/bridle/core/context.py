"""Assemble the next request.

The order is fixed: tools, system, memory, history, current message (layers.py).  Each request extends
the one before it byte for byte, because a moved prefix is a missed cache and a missed
cache is money.  So nothing here may depend on the time, the step or the weather; what
changes from step to step (tool choice, room for output) is outside the prefix.

What a model would refuse is settled before it is sent (settling.py), and noted once a run.
"""

from msgspec.structs import replace

from ..values.message import Message
from ..values.model import Endpoint, Model
from ..values.parts import Reasoning, Text, ToolCall
from ..values.request import OutputSpec, Request, Thinking, ToolChoice, ToolSpec
from ..values.settings import Settings
from .boundary import offered, withheld_tools
from .budget import room
from .catalogue import laid_out
from .held_conversation import HeldConversation
from .marking import marks_of
from .naming import cache_key
from .settling import settle, settled_losses
from .state import State


def assemble(
    state: State, choice: ToolChoice | None = None, output_tokens_max: int | None = None
) -> tuple[Request, tuple[str, ...]]:
    """The request and what had to be changed to make it acceptable."""
    settings = state.settings
    tools, deferred = laid_out(state, offered_tools(state))
    later = _shown_later(settings, state.shown)
    among = replace(settings, tools=(*settings.tools, *later)) if later else settings
    left_out = state.run.left_out
    wish = settle(
        among,
        _choice(state, choice or tool_choice_of(state)),
        unproven=settings.thinking is not None and _is_unproven(state),
        left_out=left_out,
    )
    cached = "cache" not in left_out
    most = room(state) if output_tokens_max is None else min(room(state), output_tokens_max)
    held = _held_conversation(state)
    request = Request(
        model=settings.model,
        system=system_of(state),
        tools=tools,
        deferred=deferred,
        messages=state.view,
        tool_choice=wish.choice,
        max_tokens=most,
        output=settings.output if settings.output and settings.output.mode == "native" else None,
        thinking=_within(wish.thinking, most, settings.model),
        sampling=wish.sampling,
        marks=marks_of(settings, tools, state.view, remembers=bool(memory_of(state))) if cached else (),
        cache_key=prompt_key(state),
        compared_to=reply_before(state) if cached and _explains(settings.model) else "",
        chained=settings.chain is True or held is not None,
        conversation=held.name if held else "",
        chained_to=held.reply_id if held else _chained_to(state),
        extras=wish.extras,
    )
    notes = (*wish.notes, *_note_allowance(wish.thinking, request.thinking))
    return request, (*(note for note in notes if note not in state.run.noted), *wish.step_notes)


def prompt_key(state: State) -> str:
    """The key of the cached prompt; empty where none is sent."""
    refused = "cache" in state.run.left_out
    return "" if refused else cache_key(state.settings, state.run.tenant, state.session)


def _is_unproven(state: State) -> bool:
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
    if state.run.reasoning == "left out":
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
    if (origin.family, origin.endpoint) != (endpoint.family, endpoint.home):
        return False
    return endpoint.reasoning != "signed" or bool(first.signature)


def _explains(model: Model) -> bool:
    """Whether to ask why a prompt was not found; whoever is at another address may not know the question."""
    return model.abilities.cache_explained and not model.endpoint.elsewhere


def losses(state: State, choice: ToolChoice | None = None) -> tuple[str, ...]:
    """What is asked for and is not in the next request, as far as this run has not recorded it."""
    wanted = _choice(state, choice or tool_choice_of(state))
    withheld = withheld_tools(state, shown_tools(state.settings, state.shown))
    lost = (*settled_losses(state.settings, wanted, state.run.left_out), *withheld)
    return tuple([note for note in lost if note not in state.run.noted]) if lost else ()


def tool_choice_of(state: State) -> ToolChoice:
    """The agent's own tool choice at this step: a named one forces the first step, unless it says every."""
    wanted = state.settings.tool_choice
    released = wanted.mode == "tool" and not wanted.every_step and state.run.spent.steps > 0
    return ToolChoice(parallel=wanted.parallel) if released else wanted


def _choice(state: State, wanted: ToolChoice) -> ToolChoice:
    """Whoever was told to finish must be free to: a call that is forced would keep it from answering."""
    forced = wanted.mode in ("any", "tool") and state.settings.output is None
    return replace(wanted, mode="auto", name="") if state.run.wrapped and forced else wanted


def system_of(state: State) -> tuple[Text, ...]:
    """Instructions, which all sessions of an agent share, and behind them the notes, which they do not."""
    return tuple(Text(text=words) for words in (state.settings.instructions, memory_of(state)) if words)


def memory_of(state: State) -> str:
    return state.notebook.text if state.settings.memory is not None else ""


def offered_tools(state: State) -> tuple[ToolSpec, ...]:
    """What is sent to the current model of the tools that are shown."""
    return offered(state, shown_tools(state.settings, state.shown))


def shown_tools(settings: Settings, shown: tuple[str, ...]) -> tuple[ToolSpec, ...]:
    """What the model sees, in the order it came to see it: what came later never moves what was there."""
    if settings.output is None and not shown:
        return settings.tools
    return (*settings.tools, *_output_tool(settings.output), *_shown_later(settings, shown))


def _shown_later(settings: Settings, shown: tuple[str, ...]) -> tuple[ToolSpec, ...]:
    if not shown:
        return ()
    hidden = {spec.name: spec for spec in settings.hidden}
    return tuple(hidden[name] for name in shown if name in hidden)


def _output_tool(output: OutputSpec | None) -> tuple[ToolSpec, ...]:
    if output is None or output.mode != "tool":
        return ()
    description = output.description or "Give your final answer by calling this."
    return (ToolSpec(name=output.name, description=description, parameters=output.parameters),)


def _within(thinking: Thinking | None, most: int, model: Model) -> Thinking | None:
    """Thinking that leaves room for an answer: providers refuse an allowance as large as the whole reply."""
    if thinking is None or thinking.budget_tokens is None or thinking.budget_tokens < most:
        return thinking
    allowance = most // 2
    enough = allowance >= model.abilities.allowance_least
    return replace(thinking, budget_tokens=allowance) if enough else None


def _note_allowance(wanted: Thinking | None, sent: Thinking | None) -> tuple[str, ...]:
    if sent == wanted or wanted is None:
        return ()
    if sent is None:
        return ("thinking was left out: the reply has no room for the smallest allowance",)
    return ("the allowance for thinking became half of what the reply may have, which is less",)


def relies_on_server_state(state: State) -> bool:
    """Whether the request under way names state that the provider holds instead of sending it."""
    held = state.conversation
    return bool(_chained_to(state)) or (held is not None and held.in_flight and bool(held.reply_id))


def _chained_to(state: State) -> str:
    """The newest reply of this very endpoint: it has everything up to there, if it keeps things at all."""
    if state.settings.chain is not True or state.run.unchained:
        return ""
    # A reply from before the chain was switched on was not kept by the provider.
    own = [each for each in state.transcript.messages[state.chained_from :] if each.role == "assistant"]
    return reply_before(state) if own and has_distinct_call_ids(own[-1].calls) else ""


def has_distinct_call_ids(calls: tuple[ToolCall, ...]) -> bool:
    """Whether the provider can tell these calls apart by its own ids.

    We give a repeated or missing id a new one, which state held by the provider does not know.
    """
    ids = [call.wire_id for call in calls]
    return all(ids) and len(set(ids)) == len(ids)


def _held_conversation(state: State) -> HeldConversation | None:
    """The conversation object that the next request is added to."""
    held, settings = state.conversation, state.settings
    usable = held is not None and held.name and held.seat == settings.model.seat and not held.trouble
    return held if usable and settings.chain == "conversation" else None


def reply_before(state: State) -> str:
    """What this very endpoint calls the reply before, if that was its own and on the same wire."""
    endpoint = state.settings.model.endpoint
    for message in reversed(state.view):
        if message.role == "assistant":
            origin = message.origin
            known = origin and (origin.family, origin.endpoint) == (endpoint.family, endpoint.home)
            return message.reply_id if known and not _moved_before(state, message) else ""
    return ""


def _moved_before(state: State, message: Message) -> bool:
    """Whether anything up to this message was changed since: the provider keeps what stood there then."""
    if not state.moved:
        return False
    at = next((at for at, each in enumerate(state.transcript.messages) if each.id == message.id), 0)
    return any(first <= at < last for first, last in state.moved)


def roomed(request: Request, output_tokens_max: int) -> Request:
    """The same request with no more room for the reply than this."""
    most = min(request.max_tokens or output_tokens_max, output_tokens_max)
    return replace(request, max_tokens=most, thinking=_within(request.thinking, most, request.model))
