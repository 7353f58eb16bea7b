"""Validates what a caller passes to an agent, before any of it is logged.

A value of the wrong type would otherwise be discovered when the log is read, which is too late.  Every
error is one line.  Also here: the tenant check of every entry to a session, and the ids of new sessions
(a sortable date and enough random characters to be unique).
"""

import inspect
import os
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite
from typing import Any, TypeVar, get_origin

import msgspec

from bridle.core.budget.limits import OUTPUT_TOKENS_MIN
from bridle.core.budget.scopes import merge_budgets, split_budgets
from bridle.core.calls.catalogue import explain_missing_hosted
from bridle.core.context.excerpt import RESULT_CHARACTERS_MIN
from bridle.core.state import State
from bridle.ports.clock import Clock
from bridle.ports.sandbox import Sandbox
from bridle.ports.store import Store
from bridle.ports.tool import ConfinableSource, ConfinableTool, Tool, ToolSource, WorkspaceTool
from bridle.ports.tool_index import ToolIndex
from bridle.ports.watcher import Watcher
from bridle.stores import find_store_file
from bridle.stores.conflicts import RESERVED_PREFIXES
from bridle.transports.deadlines import Deadlines
from bridle.values.calls import Policy
from bridle.values.errors import BadTool, MisuseError, SessionNotFound
from bridle.values.events import Prompted
from bridle.values.lineage import CrossTenant
from bridle.values.memory import FilledPrompt, TemplateVersion
from bridle.values.message import Media, Opaque, Prompt, PromptPart, Text
from bridle.values.model import ANY_EFFORT, EFFORT_ORDER, THINKING_DISPLAYS, THINKING_MODES, Model
from bridle.values.record import check_traceparent
from bridle.values.request import Extra, Sampling, Thinking, ToolChoice
from bridle.values.result import History
from bridle.values.settings import Settings
from bridle.values.text import repair_surrogates
from bridle.values.usage import LIMIT_KINDS, Budget

T = TypeVar("T")
SESSION_ID_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
SESSION_ID_LENGTH = 8
SESSION_ID_PATTERN = re.compile(rf"\d{{8}}-[{SESSION_ID_ALPHABET}]{{{SESSION_ID_LENGTH}}}")
TOOL_CHOICES = {"auto": ToolChoice(), "any": ToolChoice(mode="any"), "none": ToolChoice(mode="none")}
TOOLS_NAMED_MAX = 30
NUMBER_MINIMUMS = {
    "repeats_max": 2,
    "reprompts_max": 0,
    "result_characters": RESULT_CHARACTERS_MIN,
    "max_tokens": OUTPUT_TOKENS_MIN,
}
"""Minimums other than one."""


def can_call(function: object, *arguments: object) -> bool:
    """False if the function certainly cannot be called with these arguments; some builtins have no signature."""
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _implements(port: type, value: object) -> bool:
    names = (name for name in vars(port) if not name.startswith("_"))
    return not isinstance(value, type) and all(callable(getattr(value, name, None)) for name in names)


def _is_list(is_item: Callable[[object], bool], value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and all(map(is_item, value))


def _is_path(value: object) -> bool:
    return isinstance(value, str | os.PathLike)


def _is_type_form(value: object) -> bool:
    return (
        isinstance(value, type)
        or value is Any
        or get_origin(value) is not None
        or hasattr(value, "__supertype__")
    )


def _is_step_option(of: type, value: object) -> bool:
    return isinstance(value, of) or can_call(value, 1)


def check_thinking(thinking: Thinking | None, models: Iterable[Model]) -> Thinking | None:
    """The option; raises `MisuseError` for a word that neither these models nor any others have."""
    if thinking is None:
        return None
    abilities = [model.abilities for model in models]
    words: tuple[tuple[str, str, tuple[str, ...], list[str]], ...] = (
        ("effort", thinking.effort, EFFORT_ORDER, [word for each in abilities for word in each.efforts]),
        ("mode", thinking.mode, THINKING_MODES, [word for each in abilities for word in each.thinking]),
        ("display", thinking.display, THINKING_DISPLAYS, []),
    )
    for name, word, known, own in words:
        accepted = tuple(dict.fromkeys((*known, *own)))
        if word and word not in accepted and ANY_EFFORT not in own:
            listed = ", ".join(accepted)
            raise MisuseError(f"Thinking({name}={word!r}) does not exist; choose one of: {listed}")
    return thinking


def check_sampling(sampling: Sampling | None) -> Sampling:
    """The option; raises `MisuseError` for a number that JSON cannot hold, which would be left out."""
    sampling = sampling or Sampling()
    for name in ("temperature", "top_p"):
        value = getattr(sampling, name)
        if isinstance(value, float) and not isfinite(value):
            raise MisuseError(f"Sampling({name}={value}) is no number that a request can hold")
    return sampling


OPTION_CHECKS: dict[str, tuple[str, Callable[[object], bool]]] = {
    "budget": (
        f"a Budget({', '.join(f'{name}=…' for name in LIMIT_KINDS)})",
        lambda value: isinstance(value, Budget),
    ),
    "store": (
        "a store, a path or a URL such as 'sqlite:///runs.db'",
        lambda value: _is_path(value) or _implements(Store, value),
    ),
    "policy": (
        "a Policy(…) or the path of a TOML file",
        lambda value: isinstance(value, Policy) or (_is_path(value) and bool(value)),
    ),
    "context_type": ("a type", _is_type_form),
    "approver": ("an async function of the pending approval", lambda value: can_call(value, None)),
    "tool_index": ("an object with the method `find`", lambda value: _implements(ToolIndex, value)),
    "extras": ("a list of Extra(…)", lambda value: _is_list(lambda each: isinstance(each, Extra), value)),
    "deadlines": ("a Deadlines(…)", lambda value: isinstance(value, Deadlines)),
    "watchers": (
        "a list of objects with the method `on_event`",
        lambda value: _is_list(lambda each: _implements(Watcher, each), value),
    ),
    "clock": ("an object with `now`, `monotonic` and `sleep`", lambda value: _implements(Clock, value)),
    "random_source": ("a function without arguments returning a number from 0 to 1", can_call),
    "tool_choice": (
        "'auto', 'any', 'none', the name of a tool, a ToolChoice(…) or a function of the step returning one of these",
        lambda value: isinstance(value, str) or _is_step_option(ToolChoice, value),
    ),
    "thinking": (
        "a Thinking, such as Thinking(effort='low'), a function of the step returning one, or None",
        lambda value: _is_step_option(Thinking, value),
    ),
    "sampling": (
        "a Sampling, such as Sampling(temperature=0.5), a function of the step returning one, or None",
        lambda value: _is_step_option(Sampling, value),
    ),
}
"""Required kind of each option in words, and the test of a given value; None is the default of each."""


def check_given(**given: object) -> None:
    """Raise `MisuseError` for an option of the wrong type."""
    for name, value in given.items():
        wanted, is_valid = OPTION_CHECKS[name]
        if value is not None and not is_valid(value):
            raise MisuseError(f"`{name}` must be {wanted}, not {value!r}")


def check_types(budget: object, history: object = None) -> None:
    check_given(budget=budget)
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
    for prefix in RESERVED_PREFIXES:
        # guard: reserved-session-prefix
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


def check_hosted_tools(settings: Settings) -> None:
    """Refuse hosted tools that the first model cannot be offered; for later models, the difference is an event."""
    for hosted in settings.hosted_tools:
        if missing := explain_missing_hosted(hosted, settings.model):
            raise BadTool(f"hosted.{hosted.concept} cannot be used: {missing}")


def parse_tool_choice(
    wanted: str | ToolChoice, tools: Collection[str], sources: Sequence[ToolSource] = (), *, has_more: bool
) -> ToolChoice:
    """Return the choice; raises `MisuseError` if it forces a call of no tool.

    `has_more`: calls are possible besides those of `tools` and `sources`, such as that of an output type.
    """
    check_given(tool_choice=wanted)
    if isinstance(wanted, ToolChoice):
        choice = wanted
    else:
        choice = TOOL_CHOICES.get(wanted) or ToolChoice(mode="tool", name=wanted)
    if choice.name.startswith(tuple(source.prefix for source in sources)):
        return choice  # checked when the server is connected
    if choice.mode == "any" and not (tools or sources or has_more):
        raise MisuseError(
            "tool_choice='any' forces a call, but there are no tools: pass `tools` or leave it out"
        )
    if choice.mode == "tool" and choice.name not in tools:
        known = ", ".join(list(tools)[:TOOLS_NAMED_MAX]) or "none are registered"
        more = f" and {len(tools) - TOOLS_NAMED_MAX} more" if len(tools) > TOOLS_NAMED_MAX else ""
        raise MisuseError(
            f"tool_choice names {choice.name!r}, which is not a tool of this agent ({known}{more})"
        )
    return choice


def parse_prompt(prompt: Prompt) -> tuple[PromptPart, ...]:
    given: object = (prompt,) if isinstance(prompt, str | Text | Media) else prompt
    if not isinstance(given, list | tuple):
        raise MisuseError(
            f"a prompt must be a string, Text or Media, or a list of them; not {type(prompt).__name__}"
        )
    parts = tuple(_parse_prompt_part(part) for part in given)
    if not any(not isinstance(part, Text) or part.text.strip() for part in parts):
        raise MisuseError("the prompt is empty")
    return parts


def _parse_prompt_part(given: object) -> PromptPart:
    if isinstance(given, str):
        return Text(text=repair_surrogates(str(given)))  # a subclass of str cannot be encoded
    if isinstance(given, Text):
        return msgspec.structs.replace(given, text=repair_surrogates(given.text))
    if isinstance(given, Media) or (isinstance(given, Opaque) and given.wire):
        return given
    raise MisuseError(f"the parts of a prompt must be str, Text or Media, not {type(given).__name__}")


def check_tenant(session: str, state: State, tenant: str | None) -> str:
    """Raise `MisuseError` if the session belongs to another tenant; `tenant=None` skips the check.

    Returns the caller's tenant if `CrossTenant` allowed the access, otherwise an empty string.
    """
    # guard: tenant-owns-session
    if tenant is None or state.identity.owner is None or str(tenant) == state.identity.owner:
        return ""
    if isinstance(tenant, CrossTenant):
        # guard: crossing-tenant-recorded
        return str(tenant) or "(none)"
    named = f"tenant {str(tenant)!r}" if tenant else "the tenant without a name"
    raise MisuseError(
        f"session {session!r} does not belong to {named}; name its tenant, or allow the access"
        " with tenant=CrossTenant(NAME) (--across-tenants)"
    )


def resolve_session(session: str | None, *, new: bool | None, now: float) -> tuple[str, bool | None]:
    """The session id, and True if the session must be new, False if it must exist, None if it may do either."""
    if session is None:
        return new_session_id(now), True
    check_session(session)
    return session, False if new is None and is_generated_id(session) else new


def is_generated_id(session: str) -> bool:
    """True if the id has the form of a generated one; such a session must already exist."""
    return SESSION_ID_PATTERN.fullmatch(session) is not None


def new_session_id(now: float) -> str:
    day = datetime.fromtimestamp(now, UTC).strftime("%Y%m%d")
    number, letters = secrets.randbelow(len(SESSION_ID_ALPHABET) ** SESSION_ID_LENGTH), []
    for _ in range(SESSION_ID_LENGTH):
        number, letter = divmod(number, len(SESSION_ID_ALPHABET))
        letters.append(SESSION_ID_ALPHABET[letter])
    return f"{day}-{''.join(letters)}"


class WaitingCaller(str):
    """A caller that waits for its run, which is of no use after a restart of the server; recorded."""

    __slots__ = ()


def make_prompted(
    prompt: Prompt,
    budgets: tuple[Budget | None, Budget | None],
    caller: str,
    tenant: str,
    traceparent: str = "",
    history: History | None = None,
) -> Prompted:
    """The event of a prompt; raises `MisuseError` for bad input.

    `budgets` are those of the agent and of the run.
    A `history` that ends with the results of calls can be continued with an empty prompt: `()`.
    """
    continues = prompt == () and history is not None and bool(history.messages[-1:])
    continues = continues and history is not None and history.messages[-1].role == "tool"
    return Prompted(
        parts=() if continues else parse_prompt(prompt),
        budget=merge_budgets(*budgets),
        caller=str(check_text(caller=caller)),
        tenant=str(check_text(tenant=tenant)),
        templates=list_templates(prompt),
        traceparent=check_traceparent(traceparent) if traceparent else "",
        budget_parts=split_budgets(*budgets),
        client_waits=isinstance(caller, WaitingCaller),
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


def confine_tools(
    tools: dict[str, Tool], sandbox: Sandbox | None, policy: Policy, sources: Sequence[ToolSource] = ()
) -> dict[str, Tool]:
    """The tools, with the programs of those that name no sandbox in this one.

    Raises `MisuseError` if the policy requires a sandbox and a tool or a server would run without one.
    """
    if sandbox is not None:
        tools = {
            name: tool.with_sandbox(sandbox) if isinstance(tool, ConfinableTool) else tool
            for name, tool in tools.items()
        }
    # guard: required-sandbox
    if policy.sandbox == "required":
        _require_sandbox(tools, sources)
    return tools


def _require_sandbox(tools: Mapping[str, Tool], sources: Sequence[ToolSource]) -> None:
    programs = {
        f"tool `{name}`": tool.workspace for name, tool in tools.items() if isinstance(tool, ConfinableTool)
    }
    for source in sources:
        if isinstance(source, ConfinableSource) and source.is_program:
            programs[f"server {source.name!r}"] = source.workspace
    for name, folder in programs.items():
        if folder is None:
            raise MisuseError(
                f"{name}: the policy requires a sandbox for its programs; pass"
                " Agent(sandbox=find_sandbox(…)), or sandbox = true in the agent file"
            )


def check_store_location(
    store: object, tools: Mapping[str, Tool], sources: Sequence[ToolSource] = ()
) -> None:
    """Raise `MisuseError` if a tool can write the folder of the log: a model could change its own history."""
    file = find_store_file(store)
    if file is None:
        return
    folders = {
        f"tool `{name}`": tool.workspace for name, tool in tools.items() if isinstance(tool, WorkspaceTool)
    }
    for source in sources:
        if isinstance(source, ConfinableSource):
            folders[f"server {source.name!r}"] = source.workspace
    for name, folder in folders.items():
        # guard: log-outside-workspace
        if folder is not None and file.is_relative_to(folder):
            raise MisuseError(
                f"{name}: it can write the folder of the log ({file}); choose a store outside of {folder}"
            )
