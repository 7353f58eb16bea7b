"""What a caller hands to an agent, checked before anything is kept of it.

A log is read for ever; what is given the wrong type here would be found out by whoever reads
it, too late.  So everything is looked at now, and what is wrong with it is one line.
"""

import msgspec

from ..core.excerpt import RESULT_CHARACTERS_LEAST
from ..values.errors import MisuseError
from ..values.memory import NOTES_PREFIX
from ..values.message import Prompt
from ..values.parts import Media, Text
from ..values.pooled import LINE
from ..values.settings import Settings
from ..values.text import sound
from ..values.usage import Budget

LEAST = {"repeats_max": 2, "result_characters": RESULT_CHARACTERS_LEAST}
"""Numbers that have to be more than one."""


def check_types(instructions: object, budget: object) -> None:
    if instructions is not None and not isinstance(instructions, str):
        raise MisuseError(f"instructions are words, not {type(instructions).__name__}")
    if budget is not None and not isinstance(budget, Budget):
        raise MisuseError(
            f"a budget is a Budget(usd=…, tokens=…, steps=…, seconds=…, tool_calls=…), not {budget!r}"
        )


def check_session(session: object) -> str:
    """The id of a session, as it can be kept."""
    if not isinstance(session, str):
        raise MisuseError(f"a session is named by its id, which is a string; not {session!r}")
    if not session.strip():
        raise MisuseError("the session id is empty; leave it out to start a new session")
    if sound(session) != session:
        raise MisuseError(f"the session id {session!r} is not text that can be written (UTF-8)")
    if session.startswith(LINE):
        raise MisuseError(f"the names of budgets begin with {LINE}; call the session something else")
    if session.startswith(NOTES_PREFIX):
        raise MisuseError(f"{session!r} is where a tenant's notes are kept; give the session another name")
    return session


def worded(**given: object) -> str:
    """One thing that has to be words, by its name: as it can be kept."""
    ((name, value),) = given.items()
    if not isinstance(value, str):
        raise MisuseError(f"{name} is words, not {value!r}; leave it out for none")
    return sound(value)


def check_numbers(**given: object) -> None:
    for name, value in given.items():
        least = LEAST.get(name, 1)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise MisuseError(f"{name} is a whole number of at least {least}, or None; not {value!r}")


def readable(settings: Settings) -> Settings:
    """Settings that can be read back from a log exactly as they were written."""
    try:
        again = msgspec.json.decode(msgspec.json.encode(settings), type=Settings)
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise MisuseError(f"one of the agent's settings has the wrong type: {error}") from None
    return settings if again == settings else again


def parts_of_prompt(prompt: Prompt) -> tuple[Text | Media, ...]:
    given: object = (prompt,) if isinstance(prompt, str | Text | Media) else prompt
    if not isinstance(given, list | tuple):
        raise MisuseError(
            f"a prompt is words, a picture or file, or a list of them; not {type(prompt).__name__}"
        )
    parts = tuple(_part(part) for part in given)
    if not any(isinstance(part, Media) or part.text.strip() for part in parts):
        raise MisuseError("the prompt is empty; say something")
    return parts


def _part(given: object) -> Text | Media:
    if isinstance(given, str):
        return Text(text=sound(given))
    if isinstance(given, Text):
        return msgspec.structs.replace(given, text=sound(given.text))
    if isinstance(given, Media):
        return given
    raise MisuseError(f"a prompt is made of words, Text and Media; {type(given).__name__} is none of them")
