"""The mind behind the simulator: a function from a request to a reply.

A script in the prompt is played as it stands.  Otherwise the skills are asked in
turn, and when none has a move the brain says plainly what it is and what it can do.
How the reply has to look is settled last: a forced call, an answer in a given shape.

Whatever it says of its own accord it marks as simulated, so that nobody mistakes it
for a model.  Scripted replies and answers in a shape are exempt: they must be exact.
Thoughts come unsigned: whoever speaks for the provider seals the reply.
"""

import re
from collections.abc import Callable
from hashlib import sha256

import msgspec
from msgspec.structs import replace

from bridle.providers import load_codec
from bridle.sim.families import find_family
from bridle.values.message import Part, Reasoning, Reply, Stop, Text, ToolCall
from bridle.values.model import Origin
from bridle.values.request import Request, ToolSpec

from .conversation import CallMove, ConversationFacts, ResponderMove, TextMove, read_conversation
from .conversation_summary import summarize_if_asked
from .decision import ResponderDecision
from .reply_ending import end_reply_with, halve_last_part
from .sample_values import fill_schema
from .script import ReplyScript, ScriptReply, explain_mistakes, parse_script
from .skills import arithmetic, files, named_tool, weather

Skill = Callable[[ConversationFacts], ResponderMove | None]

SKILLS: tuple[Skill, ...] = (
    weather.try_weather,
    arithmetic.try_arithmetic,
    named_tool.try_named_tool,
    files.try_file_lookup,
)
SIMULATED_NOTE = "(simulated model)"
FINAL_ANSWER_TOOL = re.compile(r"final[ _-]?(?:answer|result|output|response)")
"""Said of a tool that takes the answer itself."""
THINKING_OFF = ("", "disabled", "none", "off")
INTRODUCTION = (
    "I am a simulated model: no real one was asked. I can do sums, compare the weather of cities and look"
    " things up in files when I am given tools for it, and I play scripts made of lines such as `!say TEXT`"
    " and `!call NAME {json}`. Choose a real model with `-m VENDOR:MODEL`."
)


def respond(request: Request) -> ResponderDecision:
    """What the simulator does by default: a script is played with all its troubles, else it thinks."""
    scene = read_conversation(request)
    script = parse_script(scene.prompt)
    if script is None:
        told = summarize_if_asked(request)
        parts: list[Part] = [Text(text=told)] if told else _choose_parts(request, scene)
        return ResponderDecision(reply=compose_reply(request, parts))
    if script.mistakes or scene.reply_count >= len(script.replies):
        return ResponderDecision(
            reply=compose_reply(request, [Text(text=_explain_unplayable(script, scene))])
        )
    return play_reply(request, script.replies[scene.reply_count])


def reply_to(request: Request) -> Reply:
    return respond(request).reply


def play_reply(request: Request, scripted: ScriptReply) -> ResponderDecision:
    """One reply of a script, as it is said and delivered."""
    parts: list[Part] = []
    if scripted.reasoning:
        parts.append(Reasoning(text=scripted.reasoning))
    if scripted.text:
        parts.append(Text(text=scripted.text))
    parts += [ToolCall(id="", name=call.name, arguments=call.arguments) for call in scripted.calls]
    reply = compose_reply(request, parts)
    if scripted.truncated:
        reply = replace(reply, parts=halve_last_part(reply.parts), stop=Stop.LENGTH)
    if scripted.stop:
        reply = end_reply_with(load_codec(request.model.endpoint.family), request, reply, scripted.stop)
    return ResponderDecision(
        reply=reply,
        failures=scripted.failures,
        silence_seconds=scripted.silence_seconds,
        stall_seconds=scripted.stall_seconds,
        pace_seconds=scripted.pace_seconds,
    )


def compose_reply(request: Request, parts: list[Part]) -> Reply:
    """A reply of these parts, with ids that this point of this conversation alone has."""
    mark = _hash_messages(request)
    prefix = find_family(request.model.endpoint.family).endpoints.call_prefix
    placed = tuple(_with_call_id(part, f"{prefix}sim{mark[:16]}_{index}") for index, part in enumerate(parts))
    called = any(isinstance(part, ToolCall) for part in placed)
    endpoint = request.model.endpoint
    return Reply(
        parts=placed,
        stop=Stop.TOOLS if called else Stop.DONE,
        origin=Origin(family=endpoint.family, endpoint=endpoint.endpoint_id, model=request.model.id),
        id=find_family(endpoint.family).endpoints.reply_id(mark),
    )


def _explain_unplayable(script: ReplyScript, scene: ConversationFacts) -> str:
    """What is said when there is nothing to play."""
    if script.mistakes:
        return explain_mistakes(script.mistakes)
    brought = [
        f"{item.name} {'failed with' if item.is_error else 'brought'} {item.text}"
        for item in scene.last_exchanges
    ]
    told = f" Last results: {'; '.join(brought)}." if brought else ""
    return f"The script is at its end.{told} {SIMULATED_NOTE}"


def _choose_parts(request: Request, scene: ConversationFacts) -> list[Part]:
    move = _fit_to_request(request, scene, _choose_move(scene))
    parts: list[Part] = _make_reasoning(request, move)
    if isinstance(move, TextMove):
        return [*parts, Text(text=move.text)]
    calls = move if request.tool_choice.parallel else move[:1]
    return [*parts, *(_make_tool_call(item) for item in calls)]


def _choose_move(scene: ConversationFacts) -> ResponderMove:
    moves = (skill(scene) for skill in SKILLS)
    return next((move for move in moves if move is not None), TextMove(text=INTRODUCTION))


def _fit_to_request(request: Request, scene: ConversationFacts, move: ResponderMove) -> ResponderMove:
    """The move as this request allows it: words become a call or an object where one is wanted."""
    tool = _required_tool(request, scene, move)
    if tool is not None:
        arguments = msgspec.json.decode(
            fill_schema(tool.parameters, scene.history, _answer_text(move)), type=dict[str, object]
        )
        return (CallMove(name=tool.name, arguments=arguments),)
    if not isinstance(move, TextMove):
        return move
    if request.output is not None:
        return TextMove(text=fill_schema(request.output.parameters, scene.history, _answer_text(move)))
    return move if "simulated model" in move.text else TextMove(text=f"{move.text} {SIMULATED_NOTE}")


def _answer_text(move: ResponderMove) -> str:
    """What the move says about the matter; an introduction says nothing about it."""
    return move.text if isinstance(move, TextMove) and move.text != INTRODUCTION else ""


def _required_tool(request: Request, scene: ConversationFacts, move: ResponderMove) -> ToolSpec | None:
    """The tool that must be called instead of what the brain would do."""
    choice = request.tool_choice
    if choice.mode == "tool":
        made = isinstance(move, tuple) and all(item.name == choice.name for item in move)
        return None if made else scene.tool(choice.name)
    if not isinstance(move, TextMove):
        return None
    final = next(
        (tool for tool in scene.tools if FINAL_ANSWER_TOOL.search(f"{tool.name} {tool.description}".lower())),
        None,
    )
    return final or (scene.tools[0] if choice.mode == "any" and scene.tools else None)


def _make_tool_call(item: CallMove) -> ToolCall:
    return ToolCall(id="", name=item.name, arguments=msgspec.json.encode(item.arguments).decode())


def _make_reasoning(request: Request, move: ResponderMove) -> list[Part]:
    """A model that is asked to think, or always does, shows that it did."""
    thinking = request.thinking
    modes = request.model.abilities.thinking
    asked = thinking is not None and (thinking.mode not in THINKING_OFF or thinking.budget_tokens is not None)
    always = bool(modes) and not any(mode in THINKING_OFF for mode in modes)
    if (not asked and not always) or _has_reasoned(request):
        return []
    if isinstance(move, TextMove):
        words = "I have what I need to answer."
    else:
        words = f"I need {' and '.join(dict.fromkeys(item.name for item in move))} for this."
    return [Reasoning(text=words)]


def _has_reasoned(request: Request) -> bool:
    """With an allowance for thinking, a tool loop is one turn, and the thought stands at its head."""
    mode = request.model.abilities.allowance_mode
    allowed = bool(mode) and request.thinking is not None and request.thinking.mode == mode
    return allowed and bool(request.messages) and request.messages[-1].role == "tool"


def _hash_messages(request: Request) -> str:
    """What tells this point of this conversation from every other, so that ids never repeat within one."""
    return sha256(msgspec.json.encode(request.messages)).hexdigest()


def _with_call_id(part: Part, id_: str) -> Part:
    if not isinstance(part, ToolCall):
        return part
    return ToolCall(id=id_, wire_id=id_, name=part.name, arguments=part.arguments)
