"""A conversation that does not fit and cannot be made to: the end of the run, and what is in the way.

Named are the instructions, the tools, what people said and the newest messages, with what each takes of
the window by estimate, the largest first, and what can be done about it.
"""

from collections.abc import Iterator

from ..values.message import Message
from .context import offered_tools
from .effects import End
from .saying import text_tokens, tools_tokens
from .state import State
from .weighing import filled, message_weight, scaled, weight
from .window import window_tokens

NAMED_MAX = 5
REASON = (
    "the conversation does not fit into the window of {window:,} tokens ({filled:,} by estimate) and cannot"
    " be made shorter{tries}{said}. What cannot shrink: {parts}. {advice}"
)
ADVICE = (
    "Give a larger window (another model, or context_tokens=… if the model has more), or shorten what is"
    " named, and resume; or begin a new session"
)


def stuck(state: State) -> End:
    whole = weight(state, state.view)
    parts = sorted(_parts(state), key=lambda each: -each[1])[:NAMED_MAX]
    told = ", ".join(f"{name} (about {scaled(state, size, whole):,} tokens)" for name, size in parts)
    squeeze = state.run.squeeze
    many = "1 try was" if squeeze.failed == 1 else f"{squeeze.failed} tries were"
    tries = f"; {many} in vain" if squeeze.failed else ""
    said = f" (the provider says: {squeeze.said})" if squeeze.said else ""
    window = squeeze.window_tokens or window_tokens(state)
    reason = REASON.format(
        said=said,
        window=window,
        filled=max(window + 1, state.prompt_tokens - state.slack_tokens)
        if squeeze.overflow
        else filled(state),
        tries=tries,
        parts=told,
        advice=ADVICE,
    )
    return End(stop="context", reason=reason)


def _parts(state: State) -> Iterator[tuple[str, int]]:
    settings = state.settings
    if settings.instructions:
        yield "the instructions", text_tokens(settings.instructions)
    tools = offered_tools(state)
    if tools:
        yield f"{len(tools)} tools", tools_tokens(tools)
    for message in state.view:
        yield _name(state, message), message_weight(state, message)


def _name(state: State, message: Message) -> str:
    if message.id in state.prompts:
        return f"the prompt {message.id}"
    if state.covered and message is state.view[0]:
        return f"what was said and summarised up to {state.transcript.messages[state.covered - 1].id}"
    kind = {"tool": "the tool results", "assistant": "the reply"}.get(message.role, "the message")
    return f"{kind} {message.id}"
