"""The default responder: a function from a request to a reply.

A script in the prompt is played exactly. Otherwise the skills are tried in order, and if none applies the
responder introduces itself. Last, the reply is made to fit the request: a forced call, or an answer that
follows a schema.

Text of the responder's own is marked as simulated, so that it is not mistaken for a real model's. Scripted
replies and structured answers are exempt, because they must be exact. Reasoning is unsigned: the family signs
the reply.
"""

import re
from collections.abc import Callable
from hashlib import sha256

import msgspec
from msgspec.structs import replace

from bridle.providers import load_codec
from bridle.sim.families import find_family
from bridle.values.message import Part, Reasoning, Reply, Stop, Text, ToolCall
from bridle.values.model import make_origin
from bridle.values.request import Request, ToolSpec

from .conversation import CallMove, ConversationFacts, ResponderMove, TextMove, read_conversation
from .conversation_summary import summarize_if_asked
from .decision import ResponderDecision
from .hosted_uses import cite_search, make_hosted_parts, read_search_prompt
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
SEARCH_ANSWER = (
    'I searched the web for "{query}" and found "A simulated page" (https://example.com/simulated).'
)
FINAL_ANSWER_TOOL = re.compile(r"final[ _-]?(?:answer|result|output|response)")
"""Matches a tool that takes the final answer as its arguments."""
THINKING_OFF = ("", "disabled", "none", "off")
INTRODUCTION = (
    "I am a simulated model: no real one was asked. I can do sums, compare the weather of cities and look"
    " things up in files when I am given tools for it, and I play scripts made of lines such as `!say TEXT`"
    " and `!call NAME {json}`. Choose a real model with `-m VENDOR:MODEL`."
)


def respond(request: Request) -> ResponderDecision:
    """Play the script in the prompt with all its failures, or compose a reply if there is none."""
    facts = read_conversation(request)
    script = parse_script(facts.prompt)
    if script is None:
        if search := read_search_prompt(request, facts.prompt):
            found = make_hosted_parts(request, (search,), _hash_messages(request))
            text = Text(text=f"{SEARCH_ANSWER.format(query=search.text)} {SIMULATED_NOTE}")
            reply = compose_reply(request, cite_search(request, [*found, text], (search,)))
            return ResponderDecision(reply=reply, hosted=(search,))
        summary = summarize_if_asked(request)
        parts: list[Part] = [Text(text=summary)] if summary else _choose_parts(request, facts)
        return ResponderDecision(reply=compose_reply(request, parts))
    if script.mistakes or facts.reply_count >= len(script.replies):
        return ResponderDecision(
            reply=compose_reply(request, [Text(text=_explain_unplayable(script, facts))])
        )
    return play_reply(request, script.replies[facts.reply_count])


def play_reply(request: Request, scripted: ScriptReply) -> ResponderDecision:
    """Return one scripted reply with its failures and pauses."""
    parts: list[Part] = []
    if scripted.reasoning:
        parts.append(Reasoning(text=scripted.reasoning))
    if scripted.hosted:
        parts += make_hosted_parts(request, scripted.hosted, _hash_messages(request))
    if scripted.text:
        parts.append(Text(text=scripted.text))
    parts = cite_search(request, parts, scripted.hosted) if scripted.hosted else parts
    parts += [ToolCall(id="", name=call.name, arguments=call.arguments) for call in scripted.calls]
    reply = compose_reply(request, parts)
    if scripted.truncated:
        reply = replace(reply, parts=halve_last_part(reply.parts), stop=Stop.LENGTH)
    if scripted.stop:
        reply = end_reply_with(load_codec(request.model.endpoint.family), request, reply, scripted.stop)
    return ResponderDecision(
        reply=reply,
        hosted=scripted.hosted,
        failures=scripted.failures,
        silence_seconds=scripted.silence_seconds,
        stall_seconds=scripted.stall_seconds,
        pace_seconds=scripted.pace_seconds,
    )


def compose_reply(request: Request, parts: list[Part]) -> Reply:
    """Make a reply of these parts, with ids that are unique to this point of this conversation."""
    digest = _hash_messages(request)
    endpoints = find_family(request.model.endpoint.family).endpoints
    parts_with_ids = tuple(
        _with_call_id(part, f"{endpoints.call_prefix}sim{digest[:16]}_{index}")
        for index, part in enumerate(parts)
    )
    has_calls = any(isinstance(part, ToolCall) for part in parts_with_ids)
    return Reply(
        parts=parts_with_ids,
        stop=Stop.TOOLS if has_calls else Stop.DONE,
        origin=make_origin(request.model),
        id=endpoints.reply_id(digest),
    )


def _explain_unplayable(script: ReplyScript, facts: ConversationFacts) -> str:
    """Return the text of the reply for a faulty or finished script."""
    if script.mistakes:
        return explain_mistakes(script.mistakes)
    results = [
        f"{item.name} {'failed with' if item.is_error else 'brought'} {item.text}"
        for item in facts.last_exchanges
    ]
    last_results = f" Last results: {'; '.join(results)}." if results else ""
    return f"The script is at its end.{last_results} {SIMULATED_NOTE}"


def _choose_parts(request: Request, facts: ConversationFacts) -> list[Part]:
    move = _fit_to_request(request, facts, _choose_move(facts))
    parts: list[Part] = _make_reasoning(request, move)
    if isinstance(move, TextMove):
        return [*parts, Text(text=move.text)]
    calls = move if request.tool_choice.parallel else move[:1]
    return [*parts, *(_make_tool_call(item) for item in calls)]


def _choose_move(facts: ConversationFacts) -> ResponderMove:
    moves = (skill(facts) for skill in SKILLS)
    return next((move for move in moves if move is not None), TextMove(text=INTRODUCTION))


def _fit_to_request(request: Request, facts: ConversationFacts, move: ResponderMove) -> ResponderMove:
    """Fit the move to the request: text becomes a call or a JSON object where one is required."""
    tool = _required_tool(request, facts, move)
    if tool is not None:
        arguments = msgspec.json.decode(
            fill_schema(tool.parameters, facts.history, _answer_text(move)), type=dict[str, object]
        )
        return (CallMove(name=tool.name, arguments=arguments),)
    if not isinstance(move, TextMove):
        return move
    if request.output is not None:
        return TextMove(text=fill_schema(request.output.parameters, facts.history, _answer_text(move)))
    return move if "simulated model" in move.text else TextMove(text=f"{move.text} {SIMULATED_NOTE}")


def _answer_text(move: ResponderMove) -> str:
    """Return the text of the move, or "" for the introduction."""
    return move.text if isinstance(move, TextMove) and move.text != INTRODUCTION else ""


def _required_tool(request: Request, facts: ConversationFacts, move: ResponderMove) -> ToolSpec | None:
    """Return the tool that must be called instead of making this move."""
    choice = request.tool_choice
    if choice.mode == "tool":
        is_called = isinstance(move, tuple) and all(item.name == choice.name for item in move)
        return None if is_called else facts.tool(choice.name)
    if not isinstance(move, TextMove):
        return None
    final = next(
        (tool for tool in facts.tools if FINAL_ANSWER_TOOL.search(f"{tool.name} {tool.description}".lower())),
        None,
    )
    return final or (facts.tools[0] if choice.mode == "any" and facts.tools else None)


def _make_tool_call(item: CallMove) -> ToolCall:
    return ToolCall(id="", name=item.name, arguments=msgspec.json.encode(item.arguments).decode())


def _make_reasoning(request: Request, move: ResponderMove) -> list[Part]:
    """Add reasoning if the request enables it or the model always reasons."""
    thinking = request.thinking
    modes = request.model.abilities.thinking
    is_enabled = thinking is not None and (
        thinking.mode not in THINKING_OFF or thinking.budget_tokens is not None
    )
    is_always_on = bool(modes) and not any(mode in THINKING_OFF for mode in modes)
    if (not is_enabled and not is_always_on) or _has_reasoned(request):
        return []
    if isinstance(move, TextMove):
        text = "I have what I need to answer."
    else:
        text = f"I need {' and '.join(dict.fromkeys(item.name for item in move))} for this."
    return [Reasoning(text=text)]


def _has_reasoned(request: Request) -> bool:
    """True if this tool loop already has its reasoning: with a thinking allowance it is one turn."""
    mode = request.model.abilities.allowance_mode
    has_allowance = bool(mode) and request.thinking is not None and request.thinking.mode == mode
    return has_allowance and bool(request.messages) and request.messages[-1].role == "tool"


def _hash_messages(request: Request) -> str:
    """Digest of this point of the conversation, so that ids do not repeat within it."""
    return sha256(msgspec.json.encode(request.messages)).hexdigest()


def _with_call_id(part: Part, id_: str) -> Part:
    if not isinstance(part, ToolCall):
        return part
    return ToolCall(id=id_, wire_id=id_, name=part.name, arguments=part.arguments)
