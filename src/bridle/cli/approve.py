"""Let a call run that waits for an answer.

The answer is written into the log and holds for exactly this call with these arguments.
Nothing runs yet: `bridle resume SESSION --tools FILE` goes on.
"""

import argparse
import asyncio
import getpass
from collections.abc import Awaitable, Callable, Sequence
from shlex import quote

import msgspec
from msgspec.structs import replace

from ..core.argument_changes import list_changes
from ..ports.tool import Json
from ..run.agent import Agent
from ..run.approving import chosen, complete_call
from ..values.approval import PendingApproval
from ..values.errors import MisuseError
from .approvals import questions, show_call
from .logs import fold, read_session
from .places import add_store_option, add_tenant_option, open_log
from .printing import say, say_json

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
    add_tenant_option(parser, "only of this tenant's sessions")
    add_store_option(parser)


def execute(options: argparse.Namespace) -> int:
    edited = _object(options.arguments)
    if edited is not None and options.done is not None:
        raise MisuseError("--done says that it ran already, --arguments that it shall run; give one of them")

    changed: list[str] = []

    async def approve(agent: Agent[str], question: PendingApproval) -> PendingApproval:
        if options.done is not None:
            return await agent.settle(question.session, question.id, options.done, by=by_whom(options))
        answered = await agent.approve(
            question.session, question.id, arguments=edited, reason=options.reason, by=by_whom(options)
        )
        # The question has the arguments that were asked about; what will run is what is printed.
        if edited is None:
            return answered
        text = encode_arguments(edited)
        state = fold(await read_session(agent.store, question.session))
        changed.extend(list_changes(question.complete, complete_call(state, question.tool, text)))
        return replace(answered, arguments=text, complete=complete_call(state, question.tool, text))

    return answer(options, approve, "done" if options.done is not None else "approved", changed)


def answer(options: argparse.Namespace, give: Answer, word: str, changed: Sequence[str] = ()) -> int:
    """Give the answer and say what it was about; `changed` is read afterwards."""
    question = asyncio.run(_answer(options, give))
    if options.json:
        say_json({"answered": word, "approval": question})
    else:
        say(f"{word}: {show_call(question)}")
        for line in changed:
            say(f"  changed: {line}")
        say(f"go on with: bridle resume {quote(question.session)} --tools FILE")
    return 0


async def _answer(options: argparse.Namespace, give: Answer) -> PendingApproval:
    store = open_log(options.store, to_read=True)
    try:
        question = chosen(await questions(store, tenant=options.tenant), options.id)
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
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise MisuseError(f"--arguments is no JSON object: {error}") from None
    return given
