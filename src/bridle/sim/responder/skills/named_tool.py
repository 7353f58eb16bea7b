"""A tool somebody asks for by its name: called once, and what came of it is told.

This is how a tool nobody taught the brain about can be tried, and how an answer
that has to come as a call gets made when the model is told to make it.
"""

import re

from bridle.sim.responder.conversation import ConversationFacts, ResponderMove, TextMove

from .tool_matching import make_call

TOOL_REQUEST = (
    r"`{0}`|\b(?:call|use|using|run|tool)\s+(?:the\s+)?(?:tool\s+)?[\"']?{0}\b|\b{0}\(|\b{0}\s+tool\b"
)


def try_named_tool(scene: ConversationFacts) -> ResponderMove | None:
    for tool in scene.tools:
        if not re.search(TOOL_REQUEST.format(re.escape(tool.name)), scene.prompt, re.IGNORECASE):
            continue
        done = scene.exchanges_with(tool)
        if not done:
            return (make_call(tool, {}, scene.history),)
        last = done[-1]
        return TextMove(text=f"{tool.name} {'failed' if last.is_error else 'returned'}: {last.text}")
    return None
