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

from ..providers import load
from ..values.message import Reply, Stop
from ..values.model import Origin
from ..values.parts import Part, Reasoning, Text, ToolCall
from ..values.request import Request, ToolSpec
from .directives import Script, ScriptedReply, complaint, script_of
from .endings import ended, halved
from .instance import filled
from .recap import recapped
from .scene import Answer, Call, Move, Scene, look
from .side import side_of
from .skills import arithmetic, files, named, weather
from .turn import Turn

Skill = Callable[[Scene], Move | None]

SKILLS: tuple[Skill, ...] = (weather.attempt, arithmetic.attempt, named.attempt, files.attempt)
SEAL = "(simulated model)"
FINAL = re.compile(r"final[ _-]?(?:answer|result|output|response)")
"""Said of a tool that takes the answer itself."""
QUIET = ("", "disabled", "none", "off")
INTRODUCTION = (
    "I am a simulated model: no real one was asked. I can do sums, compare the weather of cities and look"
    " things up in files when I am given tools for it, and I play scripts made of lines such as `!say TEXT`"
    " and `!call NAME {json}`. Choose a real model with `-m VENDOR:MODEL`."
)


def perform(request: Request) -> Turn:
    """What the simulator does by default: a script is played with all its troubles, else it thinks."""
    scene = look(request)
    script = script_of(scene.prompt)
    if script is None:
        told = recapped(request)
        parts: list[Part] = [Text(text=told)] if told else _thought_out(request, scene)
        return Turn(reply=composed(request, parts))
    if script.mistakes or scene.replies >= len(script.replies):
        return Turn(reply=composed(request, [Text(text=_beside_the_script(script, scene))]))
    return played(request, script.replies[scene.replies])


def decide(request: Request) -> Reply:
    return perform(request).reply


def played(request: Request, scripted: ScriptedReply) -> Turn:
    """One reply of a script, as it is said and delivered."""
    parts: list[Part] = []
    if scripted.thought:
        parts.append(Reasoning(text=scripted.thought))
    if scripted.text:
        parts.append(Text(text=scripted.text))
    parts += [ToolCall(id="", name=call.name, arguments=call.arguments) for call in scripted.calls]
    reply = composed(request, parts)
    if scripted.truncated:
        reply = replace(reply, parts=halved(reply.parts), stop=Stop.LENGTH)
    if scripted.stop:
        reply = ended(load(request.model.endpoint.family), request, reply, scripted.stop)
    return Turn(
        reply=reply,
        troubles=scripted.troubles,
        silence_seconds=scripted.silence_seconds,
        stall_seconds=scripted.stall_seconds,
        pace_seconds=scripted.pace_seconds,
    )


def composed(request: Request, parts: list[Part]) -> Reply:
    """A reply of these parts, with ids that this point of this conversation alone has."""
    mark = _mark(request)
    prefix = side_of(request.model.endpoint.family).call_prefix
    placed = tuple(_placed(part, f"{prefix}sim{mark[:16]}_{index}") for index, part in enumerate(parts))
    called = any(isinstance(part, ToolCall) for part in placed)
    endpoint = request.model.endpoint
    return Reply(
        parts=placed,
        stop=Stop.TOOLS if called else Stop.DONE,
        origin=Origin(family=endpoint.family, endpoint=endpoint.home, model=request.model.id),
        id=side_of(endpoint.family).reply_id(mark),
    )


def _beside_the_script(script: Script, scene: Scene) -> str:
    """What is said when there is nothing to play."""
    if script.mistakes:
        return complaint(script.mistakes)
    brought = [
        f"{item.name} {'failed with' if item.is_error else 'brought'} {item.text}"
        for item in scene.last_exchanges
    ]
    told = f" Last results: {'; '.join(brought)}." if brought else ""
    return f"The script is at its end.{told} {SEAL}"


def _thought_out(request: Request, scene: Scene) -> list[Part]:
    move = _shaped(request, scene, _move(scene))
    parts: list[Part] = _thoughts(request, move)
    if isinstance(move, Answer):
        return [*parts, Text(text=move.text)]
    calls = move if request.tool_choice.parallel else move[:1]
    return [*parts, *(_tool_call(item) for item in calls)]


def _move(scene: Scene) -> Move:
    moves = (skill(scene) for skill in SKILLS)
    return next((move for move in moves if move is not None), Answer(text=INTRODUCTION))


def _shaped(request: Request, scene: Scene, move: Move) -> Move:
    """The move as this request allows it: words become a call or an object where one is wanted."""
    tool = _wanted_tool(request, scene, move)
    if tool is not None:
        arguments = msgspec.json.decode(
            filled(tool.parameters, scene.history, _told(move)), type=dict[str, object]
        )
        return (Call(name=tool.name, arguments=arguments),)
    if not isinstance(move, Answer):
        return move
    if request.output is not None:
        return Answer(text=filled(request.output.parameters, scene.history, _told(move)))
    return move if "simulated model" in move.text else Answer(text=f"{move.text} {SEAL}")


def _told(move: Move) -> str:
    """What the move says about the matter; an introduction says nothing about it."""
    return move.text if isinstance(move, Answer) and move.text != INTRODUCTION else ""


def _wanted_tool(request: Request, scene: Scene, move: Move) -> ToolSpec | None:
    """The tool that must be called instead of what the brain would do."""
    choice = request.tool_choice
    if choice.mode == "tool":
        made = isinstance(move, tuple) and all(item.name == choice.name for item in move)
        return None if made else scene.tool(choice.name)
    if not isinstance(move, Answer):
        return None
    final = next(
        (tool for tool in scene.tools if FINAL.search(f"{tool.name} {tool.description}".lower())), None
    )
    return final or (scene.tools[0] if choice.mode == "any" and scene.tools else None)


def _tool_call(item: Call) -> ToolCall:
    return ToolCall(id="", name=item.name, arguments=msgspec.json.encode(item.arguments).decode())


def _thoughts(request: Request, move: Move) -> list[Part]:
    """A model that is asked to think, or always does, shows that it did."""
    thinking = request.thinking
    modes = request.model.abilities.thinking
    asked = thinking is not None and (thinking.mode not in QUIET or thinking.budget_tokens is not None)
    always = bool(modes) and not any(mode in QUIET for mode in modes)
    if (not asked and not always) or _thought_already(request):
        return []
    if isinstance(move, Answer):
        words = "I have what I need to answer."
    else:
        words = f"I need {' and '.join(dict.fromkeys(item.name for item in move))} for this."
    return [Reasoning(text=words)]


def _thought_already(request: Request) -> bool:
    """With an allowance for thinking, a tool loop is one turn, and the thought stands at its head."""
    mode = request.model.abilities.allowance_mode
    allowed = bool(mode) and request.thinking is not None and request.thinking.mode == mode
    return allowed and bool(request.messages) and request.messages[-1].role == "tool"


def _mark(request: Request) -> str:
    """What tells this point of this conversation from every other, so that ids never repeat within one."""
    return sha256(msgspec.json.encode(request.messages)).hexdigest()


def _placed(part: Part, id_: str) -> Part:
    if not isinstance(part, ToolCall):
        return part
    return ToolCall(id=id_, wire_id=id_, name=part.name, arguments=part.arguments)
