"""Finds the session of a chat, and forks it to answer a message again.

A log only grows, so another answer is a fork from before the message: the first has the id of the chat with `~2`, the
next `~3`. The latest one is the session of the chat from then on; the others stay as they are.
"""

from collections.abc import Sequence

from bridle.core.lineage.fork import find_fork_point
from bridle.run.lineage import fork_session
from bridle.run.validate_input import check_session
from bridle.serve.errors import ServeError
from bridle.serve.host import AgentHost
from bridle.serve.identity import Access, find_owner
from bridle.values.errors import Conflict
from bridle.values.events import Forked, Prompted
from bridle.values.message import Text
from bridle.values.record import Record

ANSWERS_MAX = 200
"""Forks of one chat: each is looked for at every request."""
NOT_FOUND = "the session of the chat has no such message to answer again"
NOT_FOUND_HINT = "send the messages of the chat as they are, or fork it with POST /api/sessions/ID/fork"


async def find_chat_session(host: AgentHost, chat: str) -> str:
    """The session that the chat continues: its latest fork, or the one with its own id."""
    names = await _list_names(host, chat)
    for name in reversed(names[1:]):
        records = await host.store.read(name)
        forks = (record.event for record in records if isinstance(record.event, Forked))
        # A session that someone else gave such a name is not of this chat.
        if any(fork.session == name and fork.parent in names for fork in forks):
            return name
    return chat


async def is_visible_chat(host: AgentHost, access: Access, chat: str) -> bool:
    """False if a session of the chat belongs to somebody else."""
    if access.sessions == "all":
        return True
    names = dict.fromkeys((check_session(chat), await find_chat_session(host, chat)))
    owners = [await find_owner(host.store, name) for name in names]
    # guard: chat-of-identity
    return all(owner is None or access.may_see(owner) for owner in owners)


async def fork_before_prompt(host: AgentHost, chat: str, texts: Sequence[str], *, is_edited: bool) -> str:
    """Fork a chat before the last of these messages of the user; returns the session to prompt with it.

    If it is edited, it takes the place of the message that the session has there. A message that the session does not
    have yet needs no fork.
    """
    session = await find_chat_session(host, chat)
    records = await host.store.read(session)
    prompts = [record for record in records if isinstance(record.event, Prompted)]
    found = _find_prompt([_read_text(record) for record in prompts], texts, is_edited=is_edited)
    if found is None:
        raise ServeError(409, "no_such_message", NOT_FOUND, NOT_FOUND_HINT)
    if found == len(prompts):
        return session
    before = prompts[found].seq - 1
    if find_fork_point(session, records, before).at != before:
        raise ServeError(
            409,
            "calls_in_doubt",
            "calls before this message are in doubt, and a fork from before it would not settle them",
            "send a new message instead",
        )
    names = await _list_names(host, chat)
    if len(names) > ANSWERS_MAX:
        raise ServeError(
            409, "too_many_answers", f"the chat has {ANSWERS_MAX} other answers", "start a new chat"
        )
    try:
        return (await fork_session(host.store, session, before, f"{chat}~{len(names) + 1}")).session
    except Conflict:
        problem = "another request has the same message answered again"
        raise ServeError(409, "session_busy", problem, "wait for its answer") from None


async def _list_names(host: AgentHost, chat: str) -> list[str]:
    """The chat and the names of its forks, in order, that are taken."""
    names = [check_session(chat)]
    while len(names) <= ANSWERS_MAX and await host.store.read(f"{chat}~{len(names) + 1}", limit=1):
        names.append(f"{chat}~{len(names) + 1}")
    return names


def _find_prompt(recorded: Sequence[str], texts: Sequence[str], *, is_edited: bool) -> int | None:
    """Index of the prompt that the last text repeats or replaces; None if there is none.

    The client's messages count from the start of the chat. If they do not fit, it may have sent only some of them, so
    the latest prompt with the same text is meant.
    """
    index = len(texts) - 1
    fits = len(recorded) >= index and list(recorded[:index]) == list(texts[:index])
    if fits and (index == len(recorded) or recorded[index] == texts[-1]):
        return index
    equal = [number for number, text in enumerate(recorded) if text == texts[-1]]
    if equal and (not is_edited or equal[-1] == len(recorded) - 1):
        return equal[-1]
    return index if fits and is_edited else None


def _read_text(record: Record) -> str:
    event = record.event
    assert isinstance(event, Prompted)
    return "".join(part.text for part in event.parts if isinstance(part, Text))
