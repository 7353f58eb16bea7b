"""What a caller hands to an agent, checked before anything is kept of it.

A log is read for ever; what is given the wrong type here would be found out by whoever reads
it, too late.  So everything is looked at now, and what is wrong with it is one line.
"""

import re
import secrets
from datetime import UTC, datetime

import msgspec

from bridle.core.context.excerpt import RESULT_CHARACTERS_MIN
from bridle.core.state import State
from bridle.values.budget import BUDGET_LOG_PREFIX
from bridle.values.errors import MisuseError
from bridle.values.lineage import CrossTenant
from bridle.values.memory import NOTES_PREFIX
from bridle.values.message import Media, Prompt, Text
from bridle.values.settings import Settings
from bridle.values.text import repair_surrogates
from bridle.values.usage import Budget

NUMBER_MINIMUMS = {"repeats_max": 2, "result_characters": RESULT_CHARACTERS_MIN}
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
    if repair_surrogates(session) != session:
        raise MisuseError(f"the session id {session!r} is not text that can be written (UTF-8)")
    if session.startswith(BUDGET_LOG_PREFIX):
        raise MisuseError(
            f"the names of budgets begin with {BUDGET_LOG_PREFIX}; call the session something else"
        )
    if session.startswith(NOTES_PREFIX):
        raise MisuseError(f"{session!r} is where a tenant's notes are kept; give the session another name")
    return session


def check_text(**given: object) -> str:
    """One thing that has to be words, by its name: as it can be kept."""
    ((name, value),) = given.items()
    if not isinstance(value, str):
        raise MisuseError(f"{name} is words, not {value!r}; leave it out for none")
    return repair_surrogates(value)


def check_numbers(**given: object) -> None:
    for name, value in given.items():
        least = NUMBER_MINIMUMS.get(name, 1)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise MisuseError(f"{name} is a whole number of at least {least}, or None; not {value!r}")


def check_round_trip(settings: Settings) -> Settings:
    """Settings that can be read back from a log exactly as they were written."""
    try:
        again = msgspec.json.decode(msgspec.json.encode(settings), type=Settings)
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise MisuseError(f"one of the agent's settings has the wrong type: {error}") from None
    return settings if again == settings else again


def parse_prompt(prompt: Prompt) -> tuple[Text | Media, ...]:
    given: object = (prompt,) if isinstance(prompt, str | Text | Media) else prompt
    if not isinstance(given, list | tuple):
        raise MisuseError(
            f"a prompt is words, a picture or file, or a list of them; not {type(prompt).__name__}"
        )
    parts = tuple(_parse_prompt_part(part) for part in given)
    if not any(isinstance(part, Media) or part.text.strip() for part in parts):
        raise MisuseError("the prompt is empty; say something")
    return parts


def _parse_prompt_part(given: object) -> Text | Media:
    if isinstance(given, str):
        return Text(text=repair_surrogates(given))
    if isinstance(given, Text):
        return msgspec.structs.replace(given, text=repair_surrogates(given.text))
    if isinstance(given, Media):
        return given
    raise MisuseError(f"a prompt is made of words, Text and Media; {type(given).__name__} is none of them")


# The checks of every entry to a session: its name is one, and it belongs to the tenant that asks.


def check_tenant(session: str, state: State, tenant: str | None) -> str:
    """Raises `MisuseError` when the session is another tenant's; None says nothing about a tenant.

    Gives the tenant that crosses the border by the caller's word; empty when there is no border to cross.
    """
    if tenant is None or state.owner is None or str(tenant) == state.owner:
        return ""
    if isinstance(tenant, CrossTenant):
        return str(tenant) or "(none)"
    named = f"tenant {str(tenant)!r}" if tenant else "the tenant without a name"
    raise MisuseError(
        f"session {session!r} does not belong to {named}; name the tenant it belongs to, or allow the access"
        " with tenant=Across(NAME) (--across-tenants)"
    )


# Names for new sessions: a date one can sort by and enough chance that no two are alike.


SESSION_ID_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
SESSION_ID_LENGTH = 8


SESSION_ID_PATTERN = re.compile(rf"\d{{8}}-[{SESSION_ID_ALPHABET}]{{{SESSION_ID_LENGTH}}}")


def is_generated_id(session: str) -> bool:
    """Whether an id has the form of those made here: nobody chooses such a name, so it must exist."""
    return SESSION_ID_PATTERN.fullmatch(session) is not None


def new_session_id(now: float) -> str:
    day = datetime.fromtimestamp(now, UTC).strftime("%Y%m%d")
    return f"{day}-{''.join(secrets.choice(SESSION_ID_ALPHABET) for _ in range(SESSION_ID_LENGTH))}"
