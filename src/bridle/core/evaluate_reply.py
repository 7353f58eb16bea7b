"""A reply without calls came in: is it an answer?

There is a line for every reason a model can give for stopping (`Stop`, in words in verdicts.py), and
each looks at what was said before it believes the reason: providers report "tools" with
no call and "done" with nothing said.  Every second chance has a limit; when it is used
up the run ends with what there is, never in a loop.
"""

import re
from collections.abc import Callable, Iterator
from hashlib import sha256

import msgspec

from bridle.core.calls.argument_schema import ANSWER_WORDING
from bridle.core.calls.validation import ArgumentProblem, check_arguments
from bridle.values.base import Value
from bridle.values.events import RunStop
from bridle.values.message import Media, Message, Opaque, Part, Reply, Stop, Text, ToolCall, ToolResult
from bridle.values.request import OutputSpec, Request, ToolSpec
from bridle.values.text import parse_json
from bridle.values.usage import Usage

from .effects import Effect, EndRun, Reprompt
from .state import State

REPROMPTS_MAX = 2
PAUSES_MAX = 10
REJECTED_ANSWERS_MAX = 2
NO_WORDS = "Your reply had no words in it. Please answer in words."
ANSWER_UNUSABLE = "Your answer cannot be used:"
CONTINUE_AFTER_COMPACTION = (
    "The conversation was shortened, so there is room again. Continue where your reply stopped."
)


def evaluate_reply(state: State) -> Effect | None:
    """What follows from the reply; None when the model is simply to be asked again."""
    if state.run.output is not None:
        return EndRun(stop="done")
    reply = state.run.reply
    assert reply is not None
    return STOP_HANDLERS[reply.stop](state)


def has_content(state: State) -> bool:
    """Whether the reply holds something for the person who asked: words, media, or an item that answers."""
    reply = state.run.reply
    return reply is not None and (bool(reply.text.strip()) or any(map(_is_answer, reply.parts)))


def _is_answer(part: Part) -> bool:
    return isinstance(part, Media) or (isinstance(part, Opaque) and part.answers)


def _evaluate_answer(state: State) -> Effect:
    if not has_content(state) and not state.run.continued_text:
        why, words = _silence(state)
        return _reprompt_or_end(state, why, words, stop="no_progress")
    return _check_output(state)


def _silence(state: State) -> tuple[str, str]:
    """Why a reply is no answer, and what the model is told."""
    parts = state.run.reply.parts if state.run.reply else ()
    kinds = dict.fromkeys(part.kind for part in parts if isinstance(part, Opaque))
    if not kinds:
        return "the reply was empty", "Your reply was empty. Please answer."
    items = ", ".join(kinds)
    return f"the reply had no words, only items of the provider ({items})", NO_WORDS


def _check_output(state: State) -> Effect:
    output = state.settings.output
    if output is None:
        return EndRun(stop="done")
    if output.mode == "tool":
        return _reject_answer(state, f"Give your final answer by calling the tool `{output.name}`.")
    problem = find_output_problem(output, final_text(state)) or state.run.output_error
    return _reject_answer(state, problem) if problem else EndRun(stop="done")


def _reject_answer(state: State, problem: str) -> Effect:
    if state.run.rejected_answers >= REJECTED_ANSWERS_MAX:
        return end_output_rejected(problem)
    return Reprompt(why="output", message=f"{ANSWER_UNUSABLE} {problem}\nAnswer again, in full.")


def end_output_rejected(problem: str) -> EndRun:
    """The end of a run in which no answer had the shape asked for."""
    return EndRun(stop="failed", reason=f"no answer had the shape asked for; last problem: {problem}")


def find_last_output_problem(state: State) -> str:
    """What was wrong with the last answer that the model gave by calling the output tool."""
    output, results = state.settings.output, dict[str, str]()
    for message in reversed(state.transcript.messages):
        results.update((result.call_id, result.text) for result in message.results)
        for call in message.calls:
            if output is not None and call.name == output.name:
                # Where the schema is satisfied, the type itself objected, in the call's result.
                return find_output_problem(output, call.arguments) or results.get(call.id, "")
    return ""


def _continue_truncated(state: State) -> Effect:
    if not state.run.continued_text and not has_content(state):
        words = "Your reply ran out of room before you said anything. Think less and answer."
    else:
        words = "Your reply was cut off at its length limit. Continue exactly where it stopped."
    return _reprompt_or_end(state, "the reply was cut off at its length limit", words)


def _continue_paused(state: State) -> Effect | None:
    if state.run.pauses > PAUSES_MAX:
        return EndRun(stop="failed", reason=f"the model paused {state.run.pauses} times without an answer")
    return None


def _end_refused(state: State) -> Effect:
    assert state.run.reply is not None
    return EndRun(stop="refused", reason=state.run.reply.stop_detail)


def _handle_full_context(state: State) -> Effect:
    if state.run.compaction.overflow:
        return _reprompt_or_end(
            state, "the reply ended where the window does", CONTINUE_AFTER_COMPACTION, stop="context"
        )
    return EndRun(stop="context", reason="the conversation no longer fits into the model's context window")


def _reprompt_malformed(state: State) -> Effect:
    return _reprompt_or_end(
        state, "the model's call was malformed", "Your last call was malformed. Please try again."
    )


def _handle_missing_calls(state: State) -> Effect:
    if has_content(state):
        return _check_output(state)
    words = "You announced a call but made none. Go on."
    return _reprompt_or_end(state, "a call was announced and none came", words, stop="no_progress")


def _reprompt_or_end(state: State, why: str, words: str, stop: RunStop = "failed") -> Effect:
    """Turns with nothing in them lead nowhere; what is cut or malformed is a failure."""
    if state.run.reprompts >= REPROMPTS_MAX:
        return EndRun(stop=stop, reason=f"{why}, {state.run.reprompts + 1} times in a row")
    return Reprompt(why=why, message=words)


STOP_HANDLERS: dict[Stop, Callable[[State], Effect | None]] = {
    Stop.DONE: _evaluate_answer,
    Stop.TOOLS: _handle_missing_calls,
    Stop.LENGTH: _continue_truncated,
    Stop.PAUSED: _continue_paused,
    Stop.REFUSED: _end_refused,
    Stop.FILTERED: _end_refused,
    Stop.CONTEXT: _handle_full_context,
    Stop.MALFORMED: _reprompt_malformed,
    Stop.OTHER: _evaluate_answer,
}


def final_text(state: State) -> str:
    return state.run.continued_text + (state.run.reply.text if state.run.reply else "")


def find_output_problem(output: OutputSpec, text: str) -> str:
    """Why this is not the structured answer asked for, or nothing."""
    spec = ToolSpec(name=output.name, parameters=output.parameters)
    checked = check_arguments(spec, extract_output_json(text), ANSWER_WORDING)
    return checked.text if isinstance(checked, ArgumentProblem) else ""


def find_structured_answer(state: State, reply: Reply) -> str | None:
    """The JSON of a structured answer in this reply, when there is one that satisfies its schema."""
    output = state.settings.output
    if output is None:
        return None
    if output.mode == "tool":
        given = next((call.arguments for call in reply.calls if call.name == output.name), None)
    else:
        given = None if reply.calls else extract_output_json(state.run.continued_text + reply.text)
    return given if given is not None and not find_output_problem(output, given) else None


def extract_output_json(text: str) -> str:
    """The JSON of an answer, out of the code fence some models put around it."""
    inner = text.strip()
    if inner.startswith("```"):
        inner = inner.strip("`").strip()
        first, _, rest = inner.partition("\n")
        if not _is_json(inner) and not first.startswith("{"):
            inner = rest
    return inner


def _is_json(text: str) -> bool:
    try:
        parse_json(text)
    except ValueError:
        return False
    return True


# Is the run going anywhere?
#
# A batch of calls that equals the one before it, results and all, has taught the model
# nothing; nor has a cycle of several batches that comes round again.  First the model is told
# so; when it goes on, the run ends.  No model is needed to see this, and none should be paid
# for it.


NOTICE_BEFORE_END = 2
"""How many repetitions before the last one the model is told."""
CYCLE_LENGTH_MAX = 8
"""The longest cycle that is looked for: so many batches in turn, repeated with equal results."""
ARGUMENT_CHARACTERS_MAX = 120
"""Of a call's arguments, where the calls are listed."""


class Cycle(Value):
    """The shortest cycle that the latest batches repeat most often."""

    repeats: int = 0
    """How often the cycle was completed in a row; 1 when nothing is repeated."""
    period: int = 1
    """How many batches it has."""
    complete: bool = False
    """Whether the latest batch is the last one of a cycle, counted from its first appearance."""


def find_cycle(batches: tuple[str, ...]) -> Cycle:
    """Look for cycles of up to `PERIOD_MAX` batches at the end of `batches`."""
    if not batches or batches[-1] not in batches[-1 - CYCLE_LENGTH_MAX : -1]:
        return Cycle(repeats=len(batches[-1:]), complete=bool(batches))
    found = (_find_cycle_of_period(batches, period) for period in range(1, CYCLE_LENGTH_MAX + 1))
    return max(found, key=lambda cycle: cycle.repeats)


def _find_cycle_of_period(batches: tuple[str, ...], period: int) -> Cycle:
    """Count how much of the end repeats with this period."""
    if len(batches) < period:
        return Cycle(period=period)
    length = period
    while length < len(batches) and batches[-length - 1] == batches[period - length - 1]:
        length += 1
    return Cycle(repeats=length // period, period=period, complete=length % period == 0)


def batch_signature(answered: tuple[tuple[ToolCall, ToolResult], ...]) -> str:
    """Equal exactly when the same calls brought the same results."""
    digest = sha256()
    for call, result in answered:
        brought = msgspec.json.encode(result.parts)  # pictures too: a new screenshot is news
        for piece in (call.name, _canonical_arguments(call.arguments), result.outcome):
            digest.update(piece.encode("utf-8", "surrogatepass"))
            digest.update(b"\0")
        digest.update(brought)
        digest.update(b"\0")
    return digest.hexdigest()


def list_calls(calls: tuple[ToolCall, ...]) -> str:
    return ", ".join(f"{call.name}({_shorten_arguments(call.arguments)})" for call in calls)


def repetition_notice(repeats: int, calls: tuple[ToolCall, ...]) -> str:
    return (
        f"You have now called {list_calls(calls)} {repeats} times with the same arguments and got the same"
        " result each time. Do something different, or give your answer with what you have."
    )


def _shorten_arguments(arguments: str) -> str:
    flat = " ".join(arguments.split())
    return flat if len(flat) <= ARGUMENT_CHARACTERS_MAX else f"{flat[:ARGUMENT_CHARACTERS_MAX]}…"


def _canonical_arguments(arguments: str) -> str:
    try:
        parsed = parse_json(arguments or "{}")
    except ValueError:
        return arguments
    return msgspec.json.encode(parsed, order="sorted").decode()


# Did the model read all of the prompt?  Some servers leave out its beginning and say nothing.
#
# What gives them away is their own count: fewer tokens than the prompt has words.  No tokenizer
# makes fewer tokens than words, so words are the most careful estimate there is; what is not words
# (pictures, reasoning, what a template adds) is left out of it.  A suspicion, never a proof: some
# servers do not count what they had cached.
#
# Only endpoints of a kind that does this are suspected (`Abilities.cuts_prompts`), and only of
# prompts long enough for the numbers to mean something.


WORD = re.compile(r"\w+")
PROMPT_WORDS_MIN = 500
"""Below this no server cuts anything, and a template or a miscount weighs more than the words."""
COUNTED_SHARE_MIN = 0.8
"""Fewer tokens than this share of the words are too few."""


def truncation_hint(request: Request, usage: Usage) -> str:
    """What makes it likely that the prompt was not read to its beginning; empty when nothing does."""
    counted = usage.prompt
    # What is chained to an earlier reply is not sent again, and may not be counted again.
    if (
        not request.model.abilities.cuts_prompts
        or request.server_state_until
        or usage.incomplete
        or not counted
    ):
        return ""
    words = sum(len(WORD.findall(text)) for text in _prompt_texts(request))
    if words < PROMPT_WORDS_MIN or counted >= COUNTED_SHARE_MIN * words:
        return ""
    return (
        f"{request.model.name} counted {counted} tokens in a prompt of {words} words: it seems to have left"
        " out a part of it, as servers do whose context is set too small; raise it there, or send less"
    )


def _prompt_texts(request: Request) -> Iterator[str]:
    for text in request.system:
        yield text.text
    for spec in request.tools:
        yield f"{spec.name} {spec.description}"  # how a template writes out the schema is its own affair
    for message in request.messages:
        yield from _message_texts(message)


def _message_texts(message: Message) -> Iterator[str]:
    for part in message.parts:
        inner: tuple[Part, ...] = part.parts if isinstance(part, ToolResult) else (part,)
        for each in inner:
            if isinstance(each, Text):
                yield each.text
            elif isinstance(each, ToolCall):
                yield f"{each.name} {each.arguments}"
