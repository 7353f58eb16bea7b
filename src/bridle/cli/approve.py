"""Let a call run that waits for an answer.

The answer is written into the log and holds for exactly this call with these arguments.
Nothing runs yet: `bridle resume SESSION --tools FILE` goes on.
"""

import argparse
import asyncio
import getpass
from collections.abc import Awaitable, Callable

import msgspec
from msgspec.structs import replace

from ..ports.tool import Json
from ..run.agent import Agent
from ..run.approving import chosen
from ..values.approval import PendingApproval
from ..values.errors import MisuseError
from ..watchers.console import clean
from .approvals import questions
from .places import add_store_option, open_log

NO_MODEL = "sim:"
"""Nothing is asked of one, and whoever answers need not have the session's key."""
Answer = Callable[[Agent[str], PendingApproval], Awaitable[PendingApproval]]


def arguments(parser: argparse.ArgumentParser) -> None:
    add_answer_options(parser)
    parser.add_argument("--arguments", metavar="JSON", help="run it with these arguments instead")
    parser.add_argument(
        "--done", metavar="RESULT", help="of a call in doubt: it was done already, and this came of it"
    )


def add_answer_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", help="as `bridle approvals` lists it; its beginning is enough")
    parser.add_argument("--reason", default="", help="kept in the log; a rejection's is told to the model")
    parser.add_argument("--by", default="", help="who answers (default: your login name)")
    parser.add_argument("--json", action="store_true", help="print what was answered as JSON")
    add_store_option(parser)


def execute(options: argparse.Namespace) -> int:
    edited = _object(options.arguments)
    if edited is not None and options.done is not None:
        raise MisuseError("--done says that it ran already, --arguments that it shall run; give one of them")

    async def approve(agent: Agent[str], question: PendingApproval) -> PendingApproval:
        if options.done is not None:
            return await agent.settle(question.session, question.id, options.done, by=by_whom(options))
        answered = await agent.approve(
            question.session, question.id, arguments=edited, reason=options.reason, by=by_whom(options)
        )
        # The question has the arguments that were asked about; what will run is what is printed.
        return answered if edited is None else replace(answered, arguments=encode_arguments(edited))

    return answer(options, approve, "done" if options.done is not None else "approved")


def answer(options: argparse.Namespace, give: Answer, word: str) -> int:
    question = asyncio.run(_answer(options, give))
    if options.json:
        print(msgspec.json.encode({"answered": word, "approval": question}).decode())
    else:
        print(f"{word}: {question.tool}({clean(question.arguments)})")
        print(f"go on with: bridle resume {question.session} --tools FILE")
    return 0


async def _answer(options: argparse.Namespace, give: Answer) -> PendingApproval:
    store = open_log(options.store, to_read=True)
    try:
        question = chosen(await questions(store), options.id)
        # The tools' own code is not here; what is asked of it is asked again when the call runs.
        return await give(Agent(NO_MODEL, store=store), question)
    finally:
        await store.close()


def by_whom(options: argparse.Namespace) -> str:
    if options.by:
        return str(options.by)
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "the command line"


def encode_arguments(arguments: dict[str, Json]) -> str:
    return msgspec.json.encode(arguments).decode()


def _object(text: str | None) -> dict[str, Json] | None:
    if text is None:
        return None
    try:
        msgspec.json.decode(text, type=dict[str, object])
        given: dict[str, Json] = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise MisuseError(f"--arguments is no JSON object: {error}") from None
    return given
