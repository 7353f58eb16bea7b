"""A reply without calls came in: is it an answer?

There is a line for every reason a model can give for stopping (`Stop`, in words in verdicts.py), and
each looks at what was said before it believes the reason: providers report "tools" with
no call and "done" with nothing said.  Every second chance has a limit; when it is used
up the run ends with what there is, never in a loop.
"""

from collections.abc import Callable

from ..values.event import RunStop
from ..values.json_text import parse_json
from ..values.message import Reply, Stop
from ..values.parts import Media, Opaque, Part
from ..values.request import OutputSpec, ToolSpec
from .effects import Effect, End, Nudge
from .state import State
from .validation import Problem, check_arguments
from .validation_words import ANSWER

NUDGES_MAX = 2
PAUSES_MAX = 10
REJECTIONS_MAX = 2
NO_WORDS = "Your reply had no words in it. Please answer in words."
UNUSABLE = "Your answer cannot be used:"
ROOM_AGAIN = "The conversation was shortened, so there is room again. Continue where your reply stopped."


def judge(state: State) -> Effect | None:
    """What follows from the reply; None when the model is simply to be asked again."""
    if state.run.output is not None:
        return End(stop="done")
    reply = state.run.reply
    assert reply is not None
    return VERDICTS[reply.stop](state)


def has_content(state: State) -> bool:
    """Whether the reply holds something for the person who asked: words, media, or an item that answers."""
    reply = state.run.reply
    return reply is not None and (bool(reply.text.strip()) or any(map(_is_answer, reply.parts)))


def _is_answer(part: Part) -> bool:
    return isinstance(part, Media) or (isinstance(part, Opaque) and part.answers)


def _answer(state: State) -> Effect:
    if not has_content(state) and not state.run.said:
        why, words = _silence(state)
        return _try_again(state, why, words, stop="no_progress")
    return _shaped(state)


def _silence(state: State) -> tuple[str, str]:
    """Why a reply is no answer, and what the model is told."""
    parts = state.run.reply.parts if state.run.reply else ()
    kinds = dict.fromkeys(part.kind for part in parts if isinstance(part, Opaque))
    if not kinds:
        return "the reply was empty", "Your reply was empty. Please answer."
    items = ", ".join(kinds)
    return f"the reply had no words, only items of the provider ({items})", NO_WORDS


def _shaped(state: State) -> Effect:
    output = state.settings.output
    if output is None:
        return End(stop="done")
    if output.mode == "tool":
        return _reject(state, f"Give your final answer by calling the tool `{output.name}`.")
    problem = output_problem(output, final_text(state)) or state.run.objection
    return _reject(state, problem) if problem else End(stop="done")


def _reject(state: State, problem: str) -> Effect:
    if state.run.rejections >= REJECTIONS_MAX:
        return end_unshaped(problem)
    return Nudge(why="output", words=f"{UNUSABLE} {problem}\nAnswer again, in full.")


def end_unshaped(problem: str) -> End:
    """The end of a run in which no answer had the shape asked for."""
    return End(stop="failed", reason=f"no answer had the shape asked for; last problem: {problem}")


def last_output_problem(state: State) -> str:
    """What was wrong with the last answer that the model gave by calling the output tool."""
    output, results = state.settings.output, dict[str, str]()
    for message in reversed(state.transcript.messages):
        results.update((result.call_id, result.text) for result in message.results)
        for call in message.calls:
            if output is not None and call.name == output.name:
                # Where the schema is satisfied, the type itself objected, in the call's result.
                return output_problem(output, call.arguments) or results.get(call.id, "")
    return ""


def _truncated(state: State) -> Effect:
    if not state.run.said and not has_content(state):
        words = "Your reply ran out of room before you said anything. Think less and answer."
    else:
        words = "Your reply was cut off at its length limit. Continue exactly where it stopped."
    return _try_again(state, "the reply was cut off at its length limit", words)


def _paused(state: State) -> Effect | None:
    if state.run.pauses > PAUSES_MAX:
        return End(stop="failed", reason=f"the model paused {state.run.pauses} times without an answer")
    return None


def _refused(state: State) -> Effect:
    assert state.run.reply is not None
    return End(stop="refused", reason=state.run.reply.stop_detail)


def _context(state: State) -> Effect:
    if state.run.squeeze.overflow:
        return _try_again(state, "the reply ended where the window does", ROOM_AGAIN, stop="context")
    return End(stop="context", reason="the conversation no longer fits into the model's context window")


def _malformed(state: State) -> Effect:
    return _try_again(
        state, "the model's call was malformed", "Your last call was malformed. Please try again."
    )


def _tools(state: State) -> Effect:
    if has_content(state):
        return _shaped(state)
    words = "You announced a call but made none. Go on."
    return _try_again(state, "a call was announced and none came", words, stop="no_progress")


def _try_again(state: State, why: str, words: str, stop: RunStop = "failed") -> Effect:
    """Turns with nothing in them lead nowhere; what is cut or malformed is a failure."""
    if state.run.nudges >= NUDGES_MAX:
        return End(stop=stop, reason=f"{why}, {state.run.nudges + 1} times in a row")
    return Nudge(why=why, words=words)


VERDICTS: dict[Stop, Callable[[State], Effect | None]] = {
    Stop.DONE: _answer,
    Stop.TOOLS: _tools,
    Stop.LENGTH: _truncated,
    Stop.PAUSED: _paused,
    Stop.REFUSED: _refused,
    Stop.FILTERED: _refused,
    Stop.CONTEXT: _context,
    Stop.MALFORMED: _malformed,
    Stop.OTHER: _answer,
}


def final_text(state: State) -> str:
    return state.run.said + (state.run.reply.text if state.run.reply else "")


def output_problem(output: OutputSpec, text: str) -> str:
    """Why this is not the structured answer asked for, or nothing."""
    spec = ToolSpec(name=output.name, parameters=output.parameters)
    checked = check_arguments(spec, output_json(text), ANSWER)
    return checked.text if isinstance(checked, Problem) else ""


def answer_in(state: State, reply: Reply) -> str | None:
    """The JSON of a structured answer in this reply, when there is one that satisfies its schema."""
    output = state.settings.output
    if output is None:
        return None
    if output.mode == "tool":
        given = next((call.arguments for call in reply.calls if call.name == output.name), None)
    else:
        given = None if reply.calls else output_json(state.run.said + reply.text)
    return given if given is not None and not output_problem(output, given) else None


def output_json(text: str) -> str:
    """The JSON of an answer, out of the code fence some models put around it."""
    inner = text.strip()
    if inner.startswith("```"):
        inner = inner.strip("`").strip()
        first, _, rest = inner.partition("\n")
        if not _parses(inner) and not first.startswith("{"):
            inner = rest
    return inner


def _parses(text: str) -> bool:
    try:
        parse_json(text)
    except ValueError:
        return False
    return True
