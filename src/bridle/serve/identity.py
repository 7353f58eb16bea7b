"""Identities: who sent a request, and what that person or program may do.

    identity   proven by the caller's function `identify`: caller, tenant, rights, context
    access     what one request may do: that of its identity, or of a server without identities
    owner      the tenant and the caller of the first prompt of a session

A request can never widen its access. What its body says about a tenant, a caller or an author is compared with the
identity, and refused if it differs. Where `identify` fails or returns nothing, there is no access.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Literal, NamedTuple, TypeVar, cast, get_args

import msgspec
from starlette.requests import Request
from starlette.types import Scope

from bridle.ports.store import Store
from bridle.run.context.made_context import Owner
from bridle.run.validate_input import is_generated_id
from bridle.values.base import Value
from bridle.values.errors import MisuseError
from bridle.values.events import Forked, Prompted
from bridle.values.text import escape_text, locate_error

from .errors import ServeError

LOG = logging.getLogger("bridle")
Right = Literal["read", "prompt", "approve", "administer"]
"""`read`: see sessions; `prompt`: start, steer, end and fork runs; `approve`: answer questions; `administer`: see the
metrics of the server, and choose the model of a fork."""
SeenSessions = Literal["own", "tenant", "all"]
"""Sessions that an identity reaches: those that its caller began, those of its tenant, or those of all tenants."""
RIGHTS: tuple[Right, ...] = get_args(Right)
RIGHTS_DEFAULT: frozenset[Right] = frozenset({"read", "prompt"})
WIRE_CALLER = "wire client"
"""Caller of a run without an identity that a client of a wire waits for."""
RESERVED_CALLERS = (WIRE_CALLER,)
IDENTIFY_SECONDS = 10.0
"""Time for `identify`; afterwards the request is refused."""
OWNER_PAGE_RECORDS = 16
"""Records that are read at once to find the first prompt of a session; it is one of the first."""
ACCESS_KEY = "bridle.access"
"""Place of the access in the scope of a request."""
T = TypeVar("T", bound=msgspec.Struct)


class Identity(Value, kw_only=True, gc=True):
    """Who sent a request, as `identify` has proven it."""

    caller: str
    """Name of the person or program: recorded with runs, answers and requests to end a run."""
    tenant: str = ""
    """Tenant whose sessions it may reach; empty for sessions without a tenant."""
    rights: frozenset[Right] = RIGHTS_DEFAULT
    sessions: SeenSessions = "own"
    context: object = None
    """Context of the runs that it starts (`agent.run(context=…)`); never stored."""


Identify = Callable[[Request], Identity | Awaitable[Identity | None] | None]
"""Proves who sent a request; None if nobody is proven. Gets the head of the request, without its body."""


class Access(NamedTuple):
    """What one request may do."""

    rights: frozenset[Right]
    sessions: SeenSessions
    tenant: str = ""
    caller: str = ""
    context: object = None
    is_proven: bool = False
    """True if an identity stands behind it, so that nothing in the request may name another one."""

    @property
    def owner(self) -> Owner:
        """Owner of the sessions that it begins."""
        return Owner(self.tenant, self.caller)

    def require(self, right: Right) -> None:
        # guard: right-required
        if right not in self.rights:
            raise ServeError(
                403, "forbidden", f"this needs the right {right!r}, which the request does not have"
            )

    def name_tenant(self, given: str | None) -> str | None:
        """The tenant of a request that names one, or none."""
        if self.sessions == "all":
            return given
        # guard: tenant-of-identity
        if given and given != self.tenant:
            problem = "the request names a tenant that is not its own"
            hint = "leave `tenant` out" if self.is_proven else "a server without `identify` has no tenants"
            raise ServeError(403, "other_tenant", problem, hint)
        return self.tenant

    def name_caller(self, given: str) -> str:
        """The caller of a request that names one, or none; its notes and budgets are that person's."""
        if self.sessions == "all" and not self.is_proven:
            return given
        # guard: caller-of-identity
        if given and given != self.caller:
            problem = "the request names a caller that is not its own"
            hint = "leave `caller` out" if self.is_proven else "a server without `identify` knows no callers"
            raise ServeError(403, "other_caller", problem, hint)
        return self.caller

    def name_author(self, given: str) -> str:
        """The author of an answer or of a request to a run; without identities a label that nothing depends on."""
        if not self.is_proven:
            return given
        # guard: author-of-identity
        if given and given != self.caller:
            problem = "the request names an author who is not its caller"
            raise ServeError(403, "other_caller", problem, "leave `by` out")
        return self.caller

    def narrow_query(self, given: T) -> T:
        """A query about the tenant of the access; a `caller` in it only filters what is visible."""
        tenant = getattr(given, "tenant", None)
        if tenant is None:
            return given
        return msgspec.structs.replace(given, tenant=self.name_tenant(tenant))

    def narrow(self, given: T) -> T:
        """A body whose fields about identity are those of the access."""
        checks = {"tenant": self.name_tenant, "caller": self.name_caller, "by": self.name_author}
        named = {
            name: check(getattr(given, name))
            for name, check in checks.items()
            if name in given.__struct_fields__
        }
        return msgspec.structs.replace(given, **named) if named else given

    def may_see(self, owner: Owner | None) -> bool:
        """True if sessions of this owner are visible; None for a session that does not exist."""
        if self.sessions == "all":
            return True
        # guard: session-of-tenant
        if owner is None or owner.tenant != self.tenant:
            return False
        # guard: session-of-caller
        return self.sessions == "tenant" or owner.caller in self._callers

    @property
    def _callers(self) -> tuple[str, ...]:
        """Callers whose sessions are its own; clients of a wire that prove nothing have one name together."""
        return (self.caller,) if self.is_proven else (self.caller, WIRE_CALLER)

    async def find_session(self, store: Store, session: str) -> bool:
        """True if the session exists; raises `ServeError`, as for a missing one, if it is not visible."""
        if self.sessions == "all":
            return bool(await store.read(session, limit=1))
        owner = await find_owner(store, session)
        if owner is not None and not self.may_see(owner):
            raise missing_session(session)
        return owner is not None

    async def find_new(self, store: Store, session: str | None) -> bool | None:
        """`new` of a run in this session: after the check of its owner, nobody else may begin it in between."""
        if (self.sessions == "all" and not self.is_proven) or session is None:
            return None
        return not (await self.find_session(store, session) or is_generated_id(session))

    async def check_session(self, store: Store, session: str) -> None:
        """Raise the same error for a session that is not visible and for one that does not exist."""
        if self.sessions != "all" and not await self.find_session(store, session):
            raise missing_session(session)


HOLDER = Access(frozenset(RIGHTS), "all")
"""A request to a server with one shared token, or to a server of this machine only: one person, who may do anything."""
LOCAL = Access(frozenset[Right]({"read", "prompt", "approve"}), "tenant")
"""A request from this machine to a router that only this machine reaches: one person, in sessions without a tenant."""
UNKNOWN = Access(RIGHTS_DEFAULT, "own")
"""A request that an application let through and says nothing about: it reaches sessions that are nobody's, and answers
no question, because the person who is asked must not be the one who asks."""


def missing_session(session: str) -> ServeError:
    hint = "GET /api/sessions lists those that you can see"
    return ServeError(404, "session_not_found", f"there is no session {session!r} here", hint)


def read_access(scope: Scope) -> Access:
    """The access of a request; raises `ServeError` if it has none."""
    access = scope.get(ACCESS_KEY)
    # guard: access-required
    if not isinstance(access, Access):
        raise unauthorized()
    return access


def unauthorized() -> ServeError:
    hint = "send a token of this server as: Authorization: Bearer TOKEN"
    problem = "the request does not prove who sent it"
    return ServeError(401, "unauthorized", problem, hint, {"www-authenticate": "Bearer"})


def no_identities() -> ServeError:
    problem = "this router cannot tell who sent a request, so it lets nobody in"
    hint = (
        "its owner gives router(identify=…), or options=ServeOptions(trusts_callers=True) if the application in front"
        " decides who may start runs"
    )
    return ServeError(401, "unauthorized", problem, hint)


async def find_access(identify: Identify, scope: Scope) -> Access | None:
    """What `identify` proves; None if it proves nothing. Raises `ServeError` if it fails or takes too long."""
    try:
        async with asyncio.timeout(IDENTIFY_SECONDS):
            found = identify(Request(scope))  # without `receive`: the body is not for this function
            if inspect.isawaitable(found):
                found = await found
        return None if found is None else make_access(found)
    except Exception as error:  # noqa: BLE001 - whatever fails, nobody is let in
        LOG.error("%s", escape_text(f"identify failed, so the request is refused: {locate_error(error)}"))
        raise unauthorized() from None


def make_access(identity: Identity) -> Access:
    """The access of an identity; raises `MisuseError` for one that makes no sense."""
    if not isinstance(identity, Identity):
        raise MisuseError(f"identify must return an Identity or None, not {type(identity).__name__}")
    if not isinstance(identity.caller, str) or not identity.caller or identity.caller in RESERVED_CALLERS:
        raise MisuseError("the caller of an identity must be a text that names someone")
    if not isinstance(identity.tenant, str):
        raise MisuseError(f"the tenant of an identity must be a text, not {type(identity.tenant).__name__}")
    rights = check_rights(identity.rights)
    if identity.sessions not in get_args(SeenSessions):
        raise MisuseError(f"sessions must be one of {', '.join(get_args(SeenSessions))}")
    named = identity.tenant, identity.caller, identity.context
    return Access(rights, identity.sessions, *named, is_proven=True)


def check_rights(given: object) -> frozenset[Right]:
    """The rights; raises `MisuseError` for a text, which would be read as its letters, and for an unknown right."""
    if not isinstance(given, set | frozenset | tuple | list):
        raise MisuseError(f"rights must be a set of: {', '.join(RIGHTS)}")
    if unknown := [each for each in given if each not in RIGHTS]:
        raise MisuseError(f"there is no right {unknown[0]!r}; choose from: {', '.join(RIGHTS)}")
    return frozenset(cast("set[Right]", given))


async def find_owner(store: Store, session: str) -> Owner | None:
    """The owner of a session; None if there is no such session.

    A fork from before the first prompt belongs to the owner of its parent. A session that nobody has prompted has no
    tenant and no caller.
    """
    seen, is_known = set[str](), False
    while session and session not in seen:
        seen.add(session)
        after, parent = 0, ""
        while records := await store.read(session, after, OWNER_PAGE_RECORDS):
            is_known = True
            for record in records:
                event = record.event
                if isinstance(event, Prompted):
                    return Owner(event.tenant, event.caller)
                if isinstance(event, Forked):
                    parent = event.parent
            after = records[-1].seq
        session = parent
    return Owner("", "") if is_known else None
