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

from bridle.core.budget.limits import add_nested_spending
from bridle.core.calls.compensation import list_compensations
from bridle.core.state import State
from bridle.ports.clock import Clock, RandomSource
from bridle.ports.store import Store
from bridle.ports.tool import Json, Tool
from bridle.ports.tool_index import ToolIndex
from bridle.ports.watcher import Watcher
from bridle.run.budget.nested import apply_parent_context
from bridle.run.budget.sources import BudgetPool, check_pool, check_tenant_budget
from bridle.run.calls.approval import Approver
from bridle.run.calls.catalogue import make_tool_layout
from bridle.run.memory.notes import Notes
from bridle.run.memory.retrieval import Facts, Retrieval, Retrieve, Retriever
from bridle.stores import open_store
from bridle.tools.collect_tools import collect_tools
from bridle.tools.schema.output_type import OutputType
from bridle.transports.deadlines import Deadlines
from bridle.values.calls import Policy
from bridle.values.errors import MisuseError
from bridle.values.events import Prompted
from bridle.values.lineage import CrossTenant
from bridle.values.message import Prompt
from bridle.values.request import Extra, Sampling, ToolChoice
from bridle.values.result import History, Result
from bridle.values.settings import (
    TOOL_TOKENS_DEFAULT,
    TOOLS_AT_ONCE_DEFAULT,
    TOOLS_SHOWN_DEFAULT,
    Settings,
    ToolCatalogue,
)
from bridle.values.text import describe_error, repair_surrogates
from bridle.values.usage import Budget

from .agent_settings import (
    AgentOptions,
    ToolChoiceInput,
    check_options,
    check_policy_rules,
    label_owners,
    load_policy,
    make_output_spec,
    parse_output,
    parse_tool_choice,
    resolve_summarizer,
)
from .approvals import Approvals
from .clock import SystemClock
from .driver import Driver
from .lineage import LineageMethods
from .model_chain import ModelLike, make_model_chain, settings_for_first_model
from .session import Session
from .stream import Stream, ViewerBuffers
from .sync import run_in_background
from .validate_input import (
    check_numbers,
    check_round_trip,
    check_session,
    check_text,
    check_types,
    is_generated_id,
    new_session_id,
    parse_prompt,
)

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=str)
else:
    from typing import TypeVar

    T = TypeVar("T")

StoreLike = Store | str | os.PathLike[str] | None
STOPS_WITHOUT_UNDO = ("done", "waiting", None)
"""Ends after which there is nothing to undo."""
OUTPUT_TOKENS_WITHOUT_STREAM_MAX = 21_333
"""Above this a reply may take longer than connections without traffic live, so it is streamed."""


class Agent(Approvals, LineageMethods, Generic[T]):
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
    is in run/agent_settings.py.
    """

    _store: Store | None = None

    def __init__(
        self,
        model: ModelLike | Sequence[ModelLike],
        *,
        tools: Iterable[Tool | Callable[..., object]] = (),
        instructions: str | None = None,
        budget: Budget | None = None,
        pool: BudgetPool = None,
        store: StoreLike = None,
        output: type[T] | OutputType[T] | Mapping[str, Json] | None = None,
        tool_choice: ToolChoiceInput = "auto",
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
        chance: RandomSource = random.random,
        **options: Unpack[AgentOptions],
    ) -> None:
        check_types(instructions, budget)
        check_pool(pool)
        check_options(options, Agent.__init__)
        options = resolve_summarizer(options)
        wish = options.get("compaction")
        check_numbers(
            tools_at_once=tools_at_once, tools_shown_max=tools_shown_max, tool_tokens_max=tool_tokens_max
        )
        self._model_chain = make_model_chain(model, deadlines, wish.summarizer if wish else None)
        self._deadlines, known = deadlines, collect_tools(tools)
        self._output_type = parse_output(output)
        self._choose_tool = tool_choice if callable(tool_choice) else None
        self._watchers, self._approver = tuple(watchers), approver
        self._store_location, self._pool = store, pool
        self._budget, self._clock, self._random_source = budget or Budget(), clock or SystemClock(), chance
        fixed = ToolChoice() if callable(tool_choice) else parse_tool_choice(tool_choice, known)
        limits = ToolCatalogue(shown_max=tools_shown_max, tokens_max=tool_tokens_max)
        named, memory = self._output_type.name if self._output_type else "", options.get("memory")
        self._tool_layout = make_tool_layout(known, limits, tool_index, fixed, named, memory)
        self._retriever = Retriever.create(retrieve, facts)
        settings = Settings(
            model=self._model_chain.models[0],
            models=self._model_chain.chain_models,
            instructions=repair_surrogates(instructions or "").strip(),
            tools=self._tool_layout.visible,
            hidden_tools=self._tool_layout.hidden_tools,
            catalogue=self._tool_layout.catalogue,
            tool_choice=fixed,
            output=make_output_spec(
                self._output_type, self._model_chain.models, self._tool_layout.tools, fixed
            ),
            sampling=sampling or Sampling(),
            policy=load_policy(policy),
            tools_at_once_max=tools_at_once,
            extras=tuple(extras),
            retrieval=self._retriever.settings if self._retriever else None,
            **options,
        )
        self._settings = check_policy_rules(check_round_trip(label_owners(settings)), self._tool_layout.tools)

    @property
    def settings(self) -> Settings:
        return self._settings

    @property
    def tools(self) -> Mapping[str, Tool]:
        """All of them by name, those not shown at first included."""
        return self._tool_layout.tools

    @property
    def clock(self) -> Clock:
        return self._clock

    @property
    def store(self) -> Store:
        if self._store is None:
            where = self._store_location
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
        prompted, (name, fresh) = (
            self._make_prompted(prompt, budget, caller, tenant),
            self._resolve_session(session, new),
        )
        streamed = self._must_stream()
        return await self._run_prompt(
            prompted, name, stream=streamed, history=history, new=fresh, tenant=tenant
        )

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
        return run_in_background(
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
        prompted, (name, fresh) = (
            self._make_prompted(prompt, budget, caller, tenant),
            self._resolve_session(session, new),
        )
        streamed = deltas or self._must_stream()

        async def start(viewers: ViewerBuffers) -> Result[T]:
            return await self._run_prompt(
                prompted, name, stream=streamed, viewers=viewers, new=fresh, tenant=tenant
            )

        return Stream(name, start, lambda: self._read_result(name))

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
        self._model_chain.check_price(budget, self._pool, self._clock.now())
        conversation = self.open_session(session, stream=self._must_stream())
        state = await conversation.resume(budget, tenant, trusts_approvals=trust_approvals)
        return self._make_result(session, state)

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
        self._model_chain.check_price(budget, self._pool, self._clock.now())

        async def start(viewers: ViewerBuffers) -> Result[T]:
            conversation = self.open_session(session, stream=True, viewers=viewers)
            state = await conversation.resume(budget, tenant, trusts_approvals=trust_approvals)
            return self._make_result(session, state)

        return Stream(session, start, lambda: self._read_result(session))

    async def _run_prompt(
        self,
        prompted: Prompted,
        session: str,
        *,
        stream: bool,
        viewers: ViewerBuffers | None = None,
        history: History | None = None,
        new: bool | None = None,
        tenant: str = "",
    ) -> Result[T]:
        self._model_chain.check_price(prompted.budget, self._pool, self._clock.now())
        conversation = self.open_session(session, stream=stream, viewers=viewers)
        # Inside a tool the tenant is that of the run around it, unless another is named.
        whose = tenant if isinstance(tenant, CrossTenant) else prompted.tenant
        return self._make_result(session, await conversation.prompt(prompted, history, new=new, tenant=whose))

    def _make_prompted(self, prompt: Prompt, budget: Budget | None, caller: str, tenant: str) -> Prompted:
        check_types(None, budget)
        limits, parts = budget or self._budget, parse_prompt(prompt)
        names = {"caller": check_text(caller=caller), "tenant": str(check_text(tenant=tenant))}
        prompted = apply_parent_context(Prompted(parts=parts, budget=limits, **names))
        check_tenant_budget(limits, prompted.tenant)
        return prompted

    def open_session(
        self, session: str, *, stream: bool = False, viewers: ViewerBuffers | None = None
    ) -> Session:
        """A session in this agent's hands, with nothing done about it yet."""
        check_session(session)
        lines = self._model_chain.open_connections(self._clock, self._deadlines)
        settings = replace(self._settings, skipped_models=self._model_chain.skipped_models)
        watchers = self._watchers if viewers is None else (*self._watchers, viewers)
        choose = self._choose_tool

        def driver() -> Driver:
            return Driver(
                session,
                lines=lines,
                store=self.store,
                clock=self._clock,
                chance=self._random_source,
                tools=self._tool_layout.tools,
                watchers=watchers,
                stream=stream,
                choose=(lambda step: parse_tool_choice(choose(step), self._tool_layout.tools))
                if choose
                else None,
                object_to=self._find_output_error if self._output_type else None,
                approver=self._approver,
                search=self._tool_layout.search,
                pool=self._pool,
                gatherer=self._retriever,
            )

        return Session(
            session=session,
            settings=lambda: settings_for_first_model(settings, lines, self._clock.monotonic()),
            lease=lambda: self.store.lease(session),
            new_driver=driver,
        )

    async def _read_result(self, session: str) -> Result[T]:
        """The session as its log tells it, with nothing done about it."""
        driver = self.open_session(session).new_driver()
        await driver.restore()
        return self._make_result(session, driver.state)

    def _make_result(self, session: str, state: State) -> Result[T]:
        run, whole = state.run, add_nested_spending(state.run.spent, state.run.nested_spent)
        output: object = run.answer if run.stop == "done" else None
        if self._output_type is not None:
            output = None
            if run.stop == "done" and run.output is not None:
                try:
                    output = self._output_type.convert(msgspec.json.decode(run.output))
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
            reason=run.reason or (f"wrapped up: {run.wrap_up_reason}" if run.wrap_up_reason else ""),
            session=session,
            messages=state.transcript.messages,
            steps=run.spent.steps,
            compensations=list_compensations(state) if run.stop not in STOPS_WITHOUT_UNDO else (),
            failure=run.failure if run.stop == "failed" else None,
        )

    def _find_output_error(self, answer: str) -> str:
        """What the type asked for has against an answer that satisfies its schema."""
        if self._output_type is not None:
            try:
                self._output_type.convert(msgspec.json.decode(answer))
            except Exception as error:  # noqa: BLE001 - the type is foreign code; its objection is for the model
                said, kind = describe_error(error), type(error).__name__
                return (said if isinstance(error, ValueError) else f"{kind}: {said}") or kind
        return ""

    def _resolve_session(self, session: str | None, new: bool | None) -> tuple[str, bool | None]:  # noqa: FBT001
        """The session's id, and whether it must be new (True), must exist (False) or may be either."""
        if session is None:
            return new_session_id(self._clock.now()), True
        check_session(session)
        return session, False if new is None and is_generated_id(session) else new

    def _must_stream(self) -> bool:
        return (self._settings.max_tokens or 0) > OUTPUT_TOKENS_WITHOUT_STREAM_MAX
