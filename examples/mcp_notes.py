"""An agent with an MCP server that may ask back: `python examples/mcp_notes.py` (needs `pip install 'bridle[mcp]'`).

The server of this example is this file too, started with the word `serve`.  It has a resource, a prompt, and a tool
that asks the person for a title and the model for a summary before it keeps a note.
"""

import asyncio
import sys
from typing import Annotated

from mcp.server.mcpserver import Elicit, MCPServer, Resolve, Sample
from mcp_types import CreateMessageResult, SamplingMessage, TextContent
from pydantic import BaseModel

from bridle import Agent, Budget, PendingApproval
from bridle.mcp import server
from bridle.sessions import ApprovalVerdict

app = MCPServer("notes")
NOTES = {"welcome": "Notes are kept while the server runs."}


class Title(BaseModel):
    title: str


@app.resource("note://welcome")
def welcome() -> str:
    return NOTES["welcome"]


@app.prompt()
def review(topic: str) -> str:
    return f"Which notes are about {topic}?"


def ask_title() -> Elicit[Title]:
    return Elicit("Which title should the note have?", Title)


def ask_summary(text: str) -> Sample:
    message = SamplingMessage(role="user", content=TextContent(type="text", text=f"Sum up in a line: {text}"))
    return Sample([message], max_tokens=200)


@app.tool()
def keep(
    text: str,
    chosen: Annotated[Title, Resolve(ask_title)],
    summary: Annotated[CreateMessageResult, Resolve(ask_summary)],
) -> str:
    """Keeps a note under a title that the user chooses."""
    NOTES[chosen.title] = text
    line = summary.content.text if isinstance(summary.content, TextContent) else "no text"
    return f"kept as {chosen.title!r}: {line}"


async def answer(question: PendingApproval) -> ApprovalVerdict:
    """Answer in place of a person; a real program asks one."""
    print(f"{question.rule}: {question.arguments}")
    values = {"title": "shopping"} if question.question == "elicitation" else None
    return ApprovalVerdict(answer="approve", arguments=values, by="example")


async def main() -> None:
    notes = server(
        [sys.executable, __file__, "serve"],
        name="notes",
        resources=True,
        elicitation=True,
        sampling=Budget(tokens=5_000),
    )
    for resource in await notes.list_resources():
        print(resource.uri, await notes.read_resource(resource.uri))
    found = await notes.get_prompt("review", {"topic": "food"})
    print(found.prompt)
    agent = Agent("sim:", tools=[notes], approver=answer)
    result = await agent.run('!call mcp__notes__keep {"text": "Buy bread, milk and apples."}')
    print(result.text)
    await notes.close()


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        app.run()
    else:
        asyncio.run(main())
