"""Validates what a caller passes to an agent, before any of it is logged.

A value of the wrong type would otherwise be discovered when the log is read, which is too late.  Every
error is one line.  Also here: the tenant check of every entry to a session, and the ids of new sessions
(a sortable date and enough random characters to be unique).
"""

import re
import secrets
from datetime import UTC, datetime
from typing import TypeVar

import msgspec

from bridle.core.context.excerpt import RESULT_CHARACTERS_MIN
from bridle.core.state import State
from bridle.values.budget import BUDGET_LOG_PREFIX
from bridle.values.errors import MisuseError, SessionNotFound
from bridle.values.events import Prompted
from bridle.values.lineage import CrossTenant
from bridle.values.memory import NOTES_PREFIX, FilledPrompt, TemplateVersion
from bridle.values.message import Media, Prompt, Text
from bridle.values.record import check_traceparent
from bridle.values.result import History
from bridle.values.settings import Settings
from bridle.values.text import repair_surrogates
from bridle.values.usage import LIMIT_KINDS, Budget

T = TypeVar("T")
SESSION_ID_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
SESSION_ID_LENGTH = 8
SESSION_ID_PATTERN = re.compile(rf"\d{{8}}-[{SESSION_ID_ALPHABET}]{{{SESSION_ID_LENGTH}}}")
NUMBER_MINIMUMS = {"repeats_max": 2, "result_characters": RESULT_CHARACTERS_MIN}
"""Minimums other than one."""


def check_types(budget: object, history: object = None) -> None:
    if budget is not None and not isinstance(budget, Budget):
        kinds = ", ".join(f"{name}=…" for name in LIMIT_KINDS)
        raise MisuseError(f"`budget` must be a Budget({kinds}), not {budget!r}")
    if history is not None and not isinstance(history, History):
        raise MisuseError(
            f"`history` must be a History, not `{type(history).__name__}`; make one with"
            " import_history(VENDOR, messages)"
        )


def check_session(session: object) -> str:
    """Return a valid session id; raises `MisuseError` for an invalid or reserved one."""
    if not isinstance(session, str):
        raise MisuseError(f"a session id must be a string, not {session!r}")
    if not session.strip():
        raise MisuseError("the session id is empty; leave it out to start a new session")
    if repair_surrogates(session) != session:
        raise MisuseError(f"the session id {session!r} cannot be encoded as UTF-8")
    for prefix in (BUDGET_LOG_PREFIX, NOTES_PREFIX):
        if session.startswith(prefix):
            raise MisuseError(f"session ids must not start with {prefix!r} (reserved); choose another id")
    return session


def check_text(**given: object) -> str:
    """Return the one given string with lone surrogates repaired; raises `MisuseError` for another type."""
    ((name, value),) = given.items()
    if not isinstance(value, str):
        raise MisuseError(f"{name} must be a string, not {value!r}; leave it out for none")
    return repair_surrogates(value)


def check_numbers(**given: object) -> None:
    for name, value in given.items():
        minimum = NUMBER_MINIMUMS.get(name, 1)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < minimum):
            raise MisuseError(f"{name} must be an integer of at least {minimum}, or None; not {value!r}")


def check_round_trip(settings: Settings) -> Settings:
    """Return settings that decode from the log exactly as they were encoded."""
    try:
        again = msgspec.json.decode(msgspec.json.encode(settings), type=Settings)
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise MisuseError(f"one of the agent's settings has the wrong type: {error}") from None
    return settings if again == settings else again


def parse_prompt(prompt: Prompt) -> tuple[Text | Media, ...]:
    given: object = (prompt,) if isinstance(prompt, str | Text | Media) else prompt
    if not isinstance(given, list | tuple):
        raise MisuseError(
            f"a prompt must be a string, Text or Media, or a list of them; not {type(prompt).__name__}"
        )
    parts = tuple(_parse_prompt_part(part) for part in given)
    if not any(isinstance(part, Media) or part.text.strip() for part in parts):
        raise MisuseError("the prompt is empty")
    return parts


def _parse_prompt_part(given: object) -> Text | Media:
    if isinstance(given, str):
        return Text(text=repair_surrogates(str(given)))  # a subclass of str cannot be encoded
    if isinstance(given, Text):
        return msgspec.structs.replace(given, text=repair_surrogates(given.text))
    if isinstance(given, Media):
        return given
    raise MisuseError(f"the parts of a prompt must be str, Text or Media, not {type(given).__name__}")


def check_tenant(session: str, state: State, tenant: str | None) -> str:
    """Raise `MisuseError` if the session belongs to another tenant; `tenant=None` skips the check.

    Returns the caller's tenant if `CrossTenant` allowed the access, otherwise an empty string.
    """
    if tenant is None or state.identity.owner is None or str(tenant) == state.identity.owner:
        return ""
    if isinstance(tenant, CrossTenant):
        return str(tenant) or "(none)"
    named = f"tenant {str(tenant)!r}" if tenant else "the tenant without a name"
    raise MisuseError(
        f"session {session!r} does not belong to {named}; name its tenant, or allow the access"
        " with tenant=CrossTenant(NAME) (--across-tenants)"
    )


def resolve_session(session: str | None, *, new: bool | None, now: float) -> tuple[str, bool | None]:
    """The session id, and if the session must be new (True), must exist (False) or may be either (None)."""
    if session is None:
        return new_session_id(now), True
    check_session(session)
    return session, False if new is None and is_generated_id(session) else new


def is_generated_id(session: str) -> bool:
    """True if the id has the form of a generated one; such a session must already exist."""
    return SESSION_ID_PATTERN.fullmatch(session) is not None


def new_session_id(now: float) -> str:
    day = datetime.fromtimestamp(now, UTC).strftime("%Y%m%d")
    return f"{day}-{''.join(secrets.choice(SESSION_ID_ALPHABET) for _ in range(SESSION_ID_LENGTH))}"


def make_prompted(
    prompt: Prompt, budget: Budget, caller: str, tenant: str, traceparent: str = ""
) -> Prompted:
    """The event of a prompt; raises `MisuseError` for bad input."""
    return Prompted(
        parts=parse_prompt(prompt),
        budget=budget,
        caller=check_text(caller=caller),
        tenant=str(check_text(tenant=tenant)),
        templates=list_templates(prompt),
        traceparent=check_traceparent(traceparent) if traceparent else "",
    )


def list_templates(given: object) -> tuple[TemplateVersion, ...]:
    """Templates that a text, or the texts of a list, were made from."""
    texts = given if isinstance(given, list | tuple) else (given,)
    found = (text.template for text in texts if isinstance(text, FilledPrompt))
    return tuple(dict.fromkeys(found))


def check_chosen(option: str, chosen: object, wanted: type[T]) -> T | None:
    """Return what a function of the step chose; raises `MisuseError` if it has another type."""
    if chosen is None or isinstance(chosen, wanted):
        return chosen
    raise MisuseError(f"the function {option}=… must return a {wanted.__name__} or None, not {chosen!r}")


def check_new(session: str, new: bool | None, *, begun: bool) -> None:  # noqa: FBT001
    if new is False and not begun:
        raise SessionNotFound(
            f"there is no session {session!r} in this store; leave session= out to start one,"
            " or choose a name for a new one"
        )
    if new is True and begun:
        raise MisuseError(f"session {session!r} already exists; leave new=True out to continue it")
