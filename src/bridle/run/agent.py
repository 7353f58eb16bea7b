"""`Agent`: frozen settings, and the four ways to put them to work.

    await agent.run(prompt)         one prompt to its end
    agent.stream(prompt)            the same, shown while it happens
    agent.run_sync(prompt)          the same, for code without an event loop
    await agent.resume(session)     whatever was left unfinished, to its end

All four take the same road (run/driver.py) and leave the same log.  An agent holds no
conversation; sessions do, in the agent's store.
"""

import os
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, Unpack

import msgspec
from msgspec.structs import replace

from ..core.limits import together
from ..core.state import State
from ..core.undoing import compensations
from ..ports.chance import Chance
from ..ports.clock import Clock
from ..ports.index import ToolIndex
from ..ports.store import Store
from ..ports.tool import Json, Tool
from ..ports.watcher import Watcher
from ..stores import open_store
from ..tools.collect import collect
from ..tools.output import OutputType
from ..transports.deadlines import Deadlines
from ..values.errors import MisuseError
from ..values.event import Prompted
from ..values.message import Prompt
from ..values.policy import Policy
from ..values.request import Extra, Sampling, ToolChoice
from ..values.result import History, Result
from ..values.settings import (
    TOOL_TOKENS_DEFAULT,
    TOOLS_AT_ONCE_DEFAULT,
    TOOLS_SHOWN_DEFAULT,
    Catalogue,
    Settings,
)
from ..values.tenancy import Across
from ..values.text import describe_error, sound
from ..values.usage import Budget
from .approving import Approver
from .catalogue import lay_out
from .choosing import Choice, chosen_of
from .clock import SystemClock
from .conversation import Conversation
from .desk import Desk
from .driver import Driver
from .fallback import ModelLike, beginning, lineup_of
from .gathering import Facts, Gatherer, Retrieval, Retrieve
from .given import check_numbers, check_session, check_types, parts_of_prompt, readable, worded
from .identity import is_generated, new_session
from .inside import placed
from .lineage import Branching
from .notes import Notes
from .options import Options, check_options, with_summariser
from .owners import with_owners
from .policy import check_rules, policy_of
from .reserving import Pool, check_pool, check_shared
from .shaping import output_spec, shape_of
from .stream import Stream
from .sync import wait_for
from .viewing import Viewers

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=str)
else:
    from typing import TypeVar

    T = TypeVar("T")

StoreLike = Store | str | os.PathLike[str] | None
UNHARMED = ("done", "waiting", None)
"""Ends after which there is nothing to undo."""
OUTPUT_TOKENS_WITHOUT_STREAM_MAX = 21_333
"""Above this a reply may take longer than connections without traffic live, so it is streamed."""


class Agent(Desk, Branching, Generic[T]):
    """`model` may be several, in order of preference: the next goes on when one is of no more use.
    `tools` are functions, `@tool`s or anything that is a `Tool`.  `store` is a path, a URL or a
    store; without one the log is kept in memory.  `output` is the type of the answer wanted.
    `policy` is the rules about who may do what, or the TOML file they are in.  `approver` puts a
    question about a call to a person; without one, the run ends as waiting and is resumed later.
    More tools than `tools_shown_max`, or larger ones than `tool_tokens_max`, are not all shown: the
    model searches them, by words unless `tool_index` knows better.
    A `pool` is a budget that is shared with other runs.
    `retrieve` finds chunks for a prompt and `facts` are what is true only now (the time, an id): both are
    asked for once a prompt and stand beside its words.
    `deadlines` are those of one request; `chance` spreads retries out.  Everything else that may be set
    is in run/options.py.
    """

    _store: Store | None = None

    def __init__(
        self,
        model: ModelLike | Sequence[ModelLike],
        *,
        tools: Iterable[Tool | Callable[..., object]] = (),
        instructions: str | None = None,
        budget: Budget | None = None,
        pool: Pool = None,
        store: StoreLike = None,
        output: type[T] | OutputType[T] | Mapping[str, Json] | None = None,
        tool_choice: Choice = "auto",
        sampling: Sampling | None = None,
        policy: Policy | str | os.PathLike[str] | None = None,
        approver: Approver | None = None,
        tools_at_once: int = TOOLS_AT_ONCE_DEFAULT,
        tools_shown_max: int = TOOLS_SHOWN_DEFAULT,
        tool_tokens_max: int = TOOL_TOKENS_DEFAULT,
        tool_index: ToolIndex | None = None,
        retrieve: Retrieval | Retrieve | None = None,
        facts: Facts | None = None,
        extras: Sequence[Extra] = (),
        deadlines: Deadlines | None = None,
        watchers: Sequence[Watcher] = (),
        clock: Clock | None = None,
        chance: Chance = random.random,
        **options: Unpack[Options],
    ) -> None:
        check_types(instructions, budget)
        check_pool(pool)
        check_options(options, Agent.__init__)
        options = with_summariser(options)
        wish = options.get("compaction")
        check_numbers(
            tools_at_once=tools_at_once, tools_shown_max=tools_shown_max, tool_tokens_max=tool_tokens_max
        )
        self._lineup = lineup_of(model, deadlines, wish.summariser if wish else None)
        self._deadlines, known = deadlines, collect(tools)
        self._shape, self._choose = shape_of(output), tool_choice if callable(tool_choice) else None
        self._watchers, self._approver, self._where, self._pool = tuple(watchers), approver, store, pool
        self._budget, self._clock, self._chance = budget or Budget(), clock or SystemClock(), chance
        fixed = ToolChoice() if callable(tool_choice) else chosen_of(tool_choice, known)
        limits = Catalogue(shown_max=tools_shown_max, tokens_max=tool_tokens_max)
        named, memory = self._shape.name if self._shape else "", options.get("memory")
        self._layout = lay_out(known, limits, tool_index, fixed, named, memory)
        self._gatherer = Gatherer.of(retrieve, facts)
        settings = Settings(
            model=self._lineup.models[0],
            models=self._lineup.rest,
            instructions=sound(instructions or "").strip(),
            tools=self._layout.shown,
            hidden=self._layout.hidden,
            catalogue=self._layout.catalogue,
            tool_choice=fixed,
            output=output_spec(self._shape, self._lineup.models, self._layout.tools, fixed),
            sampling=sampling or Sampling(),
            policy=policy_of(policy),
            tools_at_once_max=tools_at_once,
            extras=tuple(extras),
            gathering=self._gatherer.settings if self._gatherer else None,
            **options,
        )
        self._settings = check_rules(readable(with_owners(settings)), self._layout.tools)

    @property
    def settings(self) -> Settings:
        return self._settings

    @property
    def tools(self) -> Mapping[str, Tool]:
        """All of them by name, those not shown at first included."""
        return self._layout.tools

    @property
    def clock(self) -> Clock:
        return self._clock

    @property
    def store(self) -> Store:
        if self._store is None:
            where = self._where
            self._store = (
                open_store(where) if where is None or isinstance(where, str | os.PathLike) else where
            )
        return self._store

    @property
    def notes(self) -> Notes:
        """What tenants and sessions have noted: to be read, added to and removed from by code."""
        return Notes(self.store, memory=self._settings.memory, clock=self._clock)

    async def run(
        self,
        prompt: Prompt,
        session: str | None = None,
        *,
        new: bool | None = None,
        budget: Budget | None = None,
        history: History | None = None,
        caller: str = "",
        tenant: str = "",
    ) -> Result[T]:
        """One prompt to its end.  With the id of a session, the conversation goes on there.

        A name of your own begins a session of that name when there is none; an id that was generated must
        exist.  `new` says what has to be: True for a session that has not begun, False for one that has.
        A `history` held elsewhere becomes the beginning of a new session.  `caller` and `tenant` say
        on whose behalf, for the policy's rules and the log.
        """
        prompted, (name, fresh) = self._prompted(prompt, budget, caller, tenant), self._named(session, new)
        streamed = self._long()
        return await self._prompt(prompted, name, stream=streamed, history=history, new=fresh, tenant=tenant)

    def run_sync(
        self,
        prompt: Prompt,
        session: str | None = None,
        *,
        new: bool | None = None,
        budget: Budget | None = None,
        history: History | None = None,
        caller: str = "",
        tenant: str = "",
    ) -> Result[T]:
        return wait_for(
            self.run(prompt, session, new=new, budget=budget, history=history, caller=caller, tenant=tenant)
        )

    def stream(
        self,
        prompt: Prompt,
        session: str | None = None,
        *,
        new: bool | None = None,
        budget: Budget | None = None,
        deltas: bool = True,
        caller: str = "",
        tenant: str = "",
    ) -> Stream[T]:
        """The same run, shown while it happens: deltas and events, and a `FinalAnswer` at the end.

        Without `deltas` the model is asked for whole replies and only events are shown.  Iterated over,
        the run ends with the loop; `.start()` lets it run on its own, for any number of viewers.
        """
        prompted, (name, fresh) = self._prompted(prompt, budget, caller, tenant), self._named(session, new)
        streamed = deltas or self._long()

        async def start(viewers: Viewers) -> Result[T]:
            return await self._prompt(
                prompted, name, stream=streamed, viewers=viewers, new=fresh, tenant=tenant
            )

        return Stream(name, start, lambda: self._now(name))

    async def resume(
        self,
        session: str,
        *,
        budget: Budget | None = None,
        tenant: str | None = None,
        trust_approvals: bool = False,
    ) -> Result[T]:
        """Finish what was left unfinished, with a raised budget if one is given; for a tenant, only his.

        An approval that another user wrote into the log does not count unless `trust_approvals` says so.
        """
        check_types(None, budget)
        check_session(session)
        self._lineup.check_price(budget, self._pool, self._clock.now())
        conversation = self.conversation(session, stream=self._long())
        state = await conversation.resume(budget, tenant, trusts_approvals=trust_approvals)
        return self._result(session, state)

    def resume_stream(
        self,
        session: str,
        *,
        budget: Budget | None = None,
        tenant: str | None = None,
        trust_approvals: bool = False,
    ) -> Stream[T]:
        """`resume`, shown while it happens."""
        check_types(None, budget)
        check_session(session)
        self._lineup.check_price(budget, self._pool, self._clock.now())

        async def start(viewers: Viewers) -> Result[T]:
            conversation = self.conversation(session, stream=True, viewers=viewers)
            state = await conversation.resume(budget, tenant, trusts_approvals=trust_approvals)
            return self._result(session, state)

        return Stream(session, start, lambda: self._now(session))

    async def _prompt(
        self,
        prompted: Prompted,
        session: str,
        *,
        stream: bool,
        viewers: Viewers | None = None,
        history: History | None = None,
        new: bool | None = None,
        tenant: str = "",
    ) -> Result[T]:
        self._lineup.check_price(prompted.budget, self._pool, self._clock.now())
        conversation = self.conversation(session, stream=stream, viewers=viewers)
        # Inside a tool the tenant is that of the run around it, unless another is named.
        whose = tenant if isinstance(tenant, Across) else prompted.tenant
        return self._result(session, await conversation.prompt(prompted, history, new=new, tenant=whose))

    def _prompted(self, prompt: Prompt, budget: Budget | None, caller: str, tenant: str) -> Prompted:
        check_types(None, budget)
        limits, parts = budget or self._budget, parts_of_prompt(prompt)
        names = {"caller": worded(caller=caller), "tenant": str(worded(tenant=tenant))}
        prompted = placed(Prompted(parts=parts, budget=limits, **names))
        check_shared(limits, prompted.tenant)
        return prompted

    def conversation(
        self, session: str, *, stream: bool = False, viewers: Viewers | None = None
    ) -> Conversation:
        """A session in this agent's hands, with nothing done about it yet."""
        check_session(session)
        lines = self._lineup.lines(self._clock, self._deadlines)
        settings = replace(self._settings, skipped=self._lineup.skipped)
        watchers = self._watchers if viewers is None else (*self._watchers, viewers)
        choose = self._choose

        def driver() -> Driver:
            return Driver(
                session,
                lines=lines,
                store=self.store,
                clock=self._clock,
                chance=self._chance,
                tools=self._layout.tools,
                watchers=watchers,
                stream=stream,
                choose=(lambda step: chosen_of(choose(step), self._layout.tools)) if choose else None,
                object_to=self._objection if self._shape else None,
                approver=self._approver,
                search=self._layout.search,
                pool=self._pool,
                gatherer=self._gatherer,
            )

        return Conversation(
            session=session,
            settings=lambda: beginning(settings, lines, self._clock.monotonic()),
            hold=lambda: self.store.hold(session),
            drivers=driver,
        )

    async def _now(self, session: str) -> Result[T]:
        """The session as its log tells it, with nothing done about it."""
        driver = self.conversation(session).drivers()
        await driver.restore()
        return self._result(session, driver.state)

    def _result(self, session: str, state: State) -> Result[T]:
        run, whole = state.run, together(state.run.spent, state.run.inner)
        output: object = run.answer if run.stop == "done" else None
        if self._shape is not None:
            output = None
            if run.stop == "done" and run.output is not None:
                try:
                    output = self._shape.convert(msgspec.json.decode(run.output))
                except Exception as error:
                    # It was checked when it came; a run that ended earlier may have had another type.
                    raise MisuseError(
                        f"the answer in session {session!r} is not of this agent's output type ({error});"
                        " use an agent with the same `output=` as the run that was asked"
                    ) from error
        return Result(
            text=run.answer,
            output=output,  # type: ignore[arg-type]  # str exactly when no shape was asked for
            usage=whole.usage,
            cost=None if whole.usd is None else float(whole.usd),
            own_usage=run.spent.usage,
            own_cost=None if run.spent.usd is None else float(run.spent.usd),
            subruns=run.subruns,
            stop=run.stop or "cancelled",
            reason=run.reason or (f"wrapped up: {run.wrapped}" if run.wrapped else ""),
            session=session,
            messages=state.transcript.messages,
            steps=run.spent.steps,
            compensations=compensations(state) if run.stop not in UNHARMED else (),
            failure=run.failure if run.stop == "failed" else None,
        )

    def _objection(self, answer: str) -> str:
        """What the type asked for has against an answer that satisfies its schema."""
        if self._shape is not None:
            try:
                self._shape.convert(msgspec.json.decode(answer))
            except Exception as error:  # noqa: BLE001 - the type is foreign code; its objection is for the model
                said, kind = describe_error(error), type(error).__name__
                return (said if isinstance(error, ValueError) else f"{kind}: {said}") or kind
        return ""

    def _named(self, session: str | None, new: bool | None) -> tuple[str, bool | None]:  # noqa: FBT001
        """The session's id, and whether it must be new (True), must exist (False) or may be either."""
        if session is None:
            return new_session(self._clock.now()), True
        check_session(session)
        return session, False if new is None and is_generated(session) else new

    def _long(self) -> bool:
        return (self._settings.max_tokens or 0) > OUTPUT_TOKENS_WITHOUT_STREAM_MAX
