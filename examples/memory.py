"""An assistant that remembers its customers, looks things up, and knows what time it is.

    python examples/memory.py

It runs on the built-in simulated model, whose lines in the prompts (`!call`, `!say`) say what the model does;
with a real one, write plain words instead.
"""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

from bridle import Agent, Chunk, Memory, Query

NOTES = Path(__file__).parent / "notes"


def search(query: Query) -> list[Chunk]:
    """Files that share a word with the question, the most words first."""
    question = query.text.partition("\n")[0]
    wanted = {word.strip("?.,").lower() for word in question.split() if len(word) > 4}
    files = sorted(NOTES.glob("*.txt"))
    pages = [Chunk(text=path.read_text(), id=path.stem, source=path.name) for path in files]
    counts = {page.id: sum(word in page.text.lower() for word in wanted) for page in pages}
    return sorted((page for page in pages if counts[page.id]), key=lambda page: -counts[page.id])


def now() -> dict[str, str]:
    return {"time": datetime.now(UTC).isoformat(timespec="minutes")}


async def main() -> None:
    agent = Agent(
        "sim:",
        instructions="You help the customers of a small town's harbour.",
        memory=Memory(),
        retrieve=search,
        facts=now,
    )
    noting = '!call remember {"note": "Goes to the island on Tuesdays."}\n!then\n!say I will remember that.'
    print(await told(agent, f"I go to the island on Tuesdays.\n{noting}", tenant="ada"))
    # Another day, another session: the note stands in front of it, and nobody else sees it.
    print(await told(agent, "When is the first ferry?\n!say At 7:40, on Tuesdays too.", tenant="ada"))
    print("ada:", [note.text for note in await agent.notes.list(tenant="ada")])
    print("bob:", [note.text for note in await agent.notes.list(tenant="bob")])


async def told(agent: Agent, prompt: str, tenant: str) -> str:
    result = await agent.run(prompt, tenant=tenant)
    prompt_message = result.messages[0]  # its `added` parts are what stands beside the person's words
    beside = "".join(prompt_message.parts[at].text for at in prompt_message.added_parts)
    found = [line for line in beside.split("\n") if line.startswith("<chunk")]
    return f"{result.text}  {' '.join(found)}"


if __name__ == "__main__":
    asyncio.run(main())
