"""Answers questions from the files of a folder, cites them, and remembers what each user has told it.

    python examples/research/research.py "When does the ferry leave on Sundays?"
    python examples/research/research.py "Remember that I travel with a bicycle." --user ada
    python examples/research/research.py "What does the ferry cost for me?" --user ada

A citation that is not in the file, word for word, is sent back to the model; it never reaches the reader.
"""

import argparse
import asyncio
import os
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from bridle import (
    Agent,
    BridleError,
    Budget,
    Memory,
    Model,
    ModelConnection,
    ModelRetry,
    Result,
    Retrieval,
    tool,
)
from bridle.memory import Chunk, Query
from bridle.messages import escape_text
from bridle.testing import simulated
from passages import PassageSearch, read_passages
from reader_model import read_and_answer

LIBRARY = Path(__file__).with_name("library")
INSTRUCTIONS = """\
You answer questions from the passages that were found, and from nothing else. Search again with other words if they do
not answer it. Cite every statement: file, line, and the exact words. If the files do not say, say so.
Use remember for what the user tells about themselves, and name the notes that you used."""


class Citation(msgspec.Struct, frozen=True):
    file: str
    line: int
    """Line at which the passage begins."""
    quote: str
    """Words of the file, unchanged."""


class Answer(msgspec.Struct, frozen=True):
    text: str
    citations: list[Citation]
    notes: list[str]
    """Ids of the notes that were used."""


class Library:
    """The files, as a retriever, a tool and a check of citations."""

    def __init__(self, folder: Path) -> None:
        self._search = PassageSearch(read_passages(folder))

    def retrieve(self, query: Query) -> list[Chunk]:
        found = self._search.find(query.text)
        return [Chunk(text=each.text, id=each.source, source=each.source) for each in found]

    @tool(effect="read")
    def search_files(self, words: str) -> list[str]:
        """Passages that contain words, as FILE:LINE and text."""
        return [f"{each.source}\n{each.text}" for each in self._search.find(words)]

    def check(self, answer: Answer) -> None:
        """Send an answer back whose quotes are not in the files."""
        texts = {(each.file, each.line): each.text for each in self._search.passages}
        for each in answer.citations:
            if each.quote.strip() not in texts.get((each.file, each.line), "") or not each.quote.strip():
                raise ModelRetry(f"{each.file}:{each.line} does not contain {each.quote!r}; quote it exactly")


def choose_model(name: str) -> str | ModelConnection:
    """The offline model for `sim:…`, else the model of that name."""
    return simulated(read_and_answer, model=name) if name.startswith("sim:") else name


def make_agent(
    model: str | Model | ModelConnection = "sim:", folder: Path = LIBRARY, **options: Any
) -> Agent[object, Answer]:
    """Build the agent for a folder of files; `options` are further ones of `Agent`."""
    library = Library(folder)
    return Agent(
        choose_model(model) if isinstance(model, str) else model,
        name="research",
        tools=[library.search_files],
        instructions=INSTRUCTIONS,
        memory=Memory(),
        retrieve=Retrieval(library.retrieve, required=True),
        output=Answer,
        validate=library.check,
        budget=Budget(usd=Decimal("0.25"), steps=8),
        **options,
    )


def format_answer(result: Result[Answer]) -> str:
    answer = result.output
    if answer is None:
        return f"no answer ({result.stop}): {result.reason}"
    lines = [answer.text, *(f'  {each.file}:{each.line}  "{each.quote}"' for each in answer.citations)]
    return "\n".join([*lines, *(f"  note {each}" for each in answer.notes), f"  session {result.session}"])


async def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("question")
    parser.add_argument("--user", default="", help="whose notes are used; users do not see each other's")
    parser.add_argument(
        "--folder", type=Path, default=LIBRARY, help="folder of text files (default: the example's)"
    )
    parser.add_argument("--session", help="continue a conversation, or name a new one")
    parser.add_argument(
        "--store", default="research.db", help="the log, with the notes (default: research.db)"
    )
    parser.add_argument(
        "--model", default=os.environ.get("BRIDLE_MODEL", "sim:"), help="default: $BRIDLE_MODEL or sim:"
    )
    given = parser.parse_args()
    try:
        agent = make_agent(given.model, given.folder, store=given.store)
    except NotADirectoryError as error:
        parser.error(str(error))
    result = await agent.run(given.question, given.session, tenant=given.user)
    print("\n".join(escape_text(line, exact=True) for line in format_answer(result).splitlines()))
    return 0 if result.done else 1


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main()))
    except BridleError as error:
        sys.exit(escape_text(str(error), exact=True))
    except KeyboardInterrupt:
        sys.exit("interrupted")
