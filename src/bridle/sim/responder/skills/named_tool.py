"""Calls a tool that the prompt asks for by name, once, and reports the result.

It lets a user try any tool, and produces the call when an answer must be given as one.
"""

import re

from bridle.sim.responder.conversation import ConversationFacts, ResponderMove, TextMove

from .tool_matching import make_call

TOOL_REQUEST = (
    r"`{0}`|\b(?:call|use|using|run|tool)\s+(?:the\s+)?(?:tool\s+)?[\"']?{0}\b|\b{0}\(|\b{0}\s+tool\b"
)


def try_named_tool(facts: ConversationFacts) -> ResponderMove | None:
    for tool in facts.tools:
        if not re.search(TOOL_REQUEST.format(re.escape(tool.name)), facts.prompt, re.IGNORECASE):
            continue
        done = facts.exchanges_with(tool)
        if not done:
            return (make_call(tool, {}, facts.history),)
        last = done[-1]
        return TextMove(text=f"{tool.name} {'failed' if last.is_error else 'returned'}: {last.text}")
    return None
