"""`Agent`: frozen settings, and the methods that run them.

    await agent.run(prompt)         run one prompt to its end
    agent.stream(prompt)            the same, yielding deltas and events
    agent.run_sync(prompt)          the same, for code without an event loop
    agent.stream_sync(prompt)       the stream, for code without an event loop
    await agent.resume(session)     finish a run that ended early; resume_sync, resume_stream

All use the same driver (run/driver.py) and write the same log.  The sessions of a store hold conversations.
"""

from __future__ import annotations

import os
import random
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Generic, overload

from bridle import run as runtime
from bridle.values.calls import ApprovalVerdict
from bridle.values.errors import MisuseError
from bridle.values.lineage import CrossTenant
from bridle.values.settings import (
    TOOL_TOKENS_DEFAULT,
    TOOLS_AT_ONCE_DEFAULT,
    TOOLS_SHOWN_DEFAULT,
    Settings,
    ToolCatalogue,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from typing import Any, Unpack

    from typing_extensions import TypeVar

    from bridle.ports.clock import Clock, RandomSource
    from bridle.ports.sandbox import Sandbox
    from bridle.ports.store import Store
    from bridle.ports.tool import Json, Tool, ToolSource
    from bridle.ports.tool_index import ToolIndex
    from bridle.ports.watcher import Watcher
    from bridle.tools.schema.output_type import OutputType
    from bridle.transports.deadlines import Deadlines
    from bridle.values.calls import Compensation, PendingApproval, Policy
    from bridle.values.events import Prompted
    from bridle.values.lineage import Branch, Comparison, Fork, ForkPlace
    from bridle.values.message import Prompt
    from bridle.values.request import Extra
    from bridle.values.result import History, Result
    from bridle.values.usage import Budget

    from .agent_settings import (
        NO_TOOLS,
        TEXT_OUTPUT,
        AgentOptions,
        AgentParts,
        OneOutput,
        OutputLike,
        SamplingInput,
        ThinkingInput,
        ToolChoiceInput,
    )
    from .budget.nested import NestedRun
    from .budget.sources import BudgetPool
    from .calls.agent_tool import AgentTool, AgentToolOptions
    from .calls.approval import Approver, CallResult
    from .calls.code_mode import CodeMode
    from .calls.handover import Handover, SessionOptions
    from .context.instructions import C_contra, Instructions
    from .context.resources import RunResources, StoreLike
    from .context.run_options import RunOptions, RunSettings
    from .context.telemetry import TelemetryInput
    from .control.gate import EffectGate
    from .hooks import Hook
    from .memory.notes import Notes
    from .memory.retrieval import Facts, Retrieval, Retrieve
    from .model_connection import ModelLike
    from .result import Validator
    from .session import Session
    from .stream import RunControl, Stream
    from .sync import SyncStream

    R = TypeVar("R")
    T = TypeVar("T", default=str)
else:
    from typing import TypeVar

    C_contra, T = TypeVar("C_contra", contravariant=True), TypeVar("T")
    NO_TOOLS, TEXT_OUTPUT = (), None

TELEMETRY_MODULE = "bridle.run.context.telemetry"
TELEMETRY_VARIABLE = "BRIDLE_TELEMETRY"


class TextOutputDefault:
    """Makes `Agent[Context]` mean `Agent[Context, str]` at run time too.

    Before Python 3.13 only type checkers know the defaults of type variables.
    """

    if not TYPE_CHECKING:

        def __class_getitem__(cls, types: object) -> object:
            given = types if isinstance(types, tuple) else (types, str)
            return super().__class_getitem__(given)


class Agent(TextOutputDefault, Generic[C_contra, T]):
    """A model, tools and settings, ready to run prompts: `Agent[Context, Output]`.

    `model` is one model, or several in order of preference: the next is used if one fails.  `tools` are
    functions, `@tool`s, `Tool` objects or MCP servers.  `store` is a path, a URL or a store; the default is in memory.
    `context_type` is the type of `run(…, context=…)`; only type checkers that cannot infer it from the
    tools need it.  `policy` holds the permission rules, or the path of a TOML file.  `approver` asks a
    person about a call; without one the run stops as waiting and is resumed later.  With more tools than
    `tools_shown_max`, or larger ones than `tool_tokens_max`, the model searches for tools, by words or with
    `tool_index`.  `pool` is a budget shared with other runs.  `retrieve` finds chunks for a prompt and
    `facts` returns current values, once per prompt.  `hooks` decide at five points of a run.  `handover`
    lists agents that may take over, or their names.  `telemetry` exports traces: True or `Telemetry(…)`; by
    default the variable BRIDLE_TELEMETRY decides.  `raise_on_stop` makes `run`, `resume` and streams raise
    `RunStopped` for a run without an answer.  `sandbox` isolates the programs of
    tools.  `code_mode` lets the model write programs that call the tools.  run/agent_settings.py lists the
    other options.
    """

    def __init__(
        self,
        model: ModelLike | Sequence[ModelLike],
        *,
        tools: Iterable[Tool[C_contra] | Callable[..., object] | ToolSource] = NO_TOOLS,
        instructions: Instructions[C_contra] | None = None,
        budget: Budget | None = None,
        pool: BudgetPool = None,
        store: StoreLike = None,
        output: OutputLike[T] | None = TEXT_OUTPUT,  # type: ignore[assignment]
        validate: Validator[T, C_contra] | Sequence[Callable[..., object]] | None = None,
        context_type: type[C_contra] | None = None,
        tool_choice: ToolChoiceInput = "auto",
        thinking: ThinkingInput = None,
        sampling: SamplingInput = None,
        policy: Policy | str | os.PathLike[str] | None = None,
        approver: Approver | None = None,
        tools_at_once: int = TOOLS_AT_ONCE_DEFAULT,
        tools_shown_max: int = TOOLS_SHOWN_DEFAULT,
        tool_tokens_max: int = TOOL_TOKENS_DEFAULT,
        tool_index: ToolIndex | None = None,
        retrieve: Retrieval | Retrieve | None = None,
        facts: Facts | None = None,
        hooks: Sequence[Hook[C_contra]] = (),
        sandbox: Sandbox | None = None,
        code_mode: CodeMode | None = None,
        handover: Sequence[Agent[C_contra, T] | Handover | str] = (),
        extras: Sequence[Extra] = (),
        deadlines: Deadlines | None = None,
        watchers: Sequence[Watcher] = (),
        telemetry: TelemetryInput = None,
        raise_on_stop: bool = False,
        clock: Clock | None = None,
        random_source: RandomSource = random.random,
        **options: Unpack[AgentOptions],
    ) -> None:
        runtime.check_given(budget=budget, store=store, extras=extras, watchers=watchers)
        if not isinstance(raise_on_stop, bool):
            raise MisuseError(f"raise_on_stop must be True or False, not {raise_on_stop!r}")
        runtime.check_pool(pool)
        runtime.check_options(options, Agent.__init__)
        runtime.check_given(approver=approver, clock=clock, random_source=random_source)
        retriever, hooking = runtime.Retriever.create(retrieve, facts), runtime.register_hooks(hooks)
        settings = Settings(
            catalogue=ToolCatalogue(shown_max=tools_shown_max, tokens_max=tool_tokens_max),
            policy=runtime.load_policy(policy),
            tools_at_once_max=tools_at_once,
            extras=tuple(extras),
            retrieval=retriever.settings if retriever else None,
            hooks=hooking.specs,
            **runtime.resolve_summarizer(options),
        )
        given = runtime.add_handover_tools(tools, handover), tool_index, tool_choice, instructions
        self.parts = runtime.make_parts(runtime.AgentInputs(
            settings, model, deadlines, *given, thinking, sampling, output, validate, context_type, hooking,
            sandbox, store, None if code_mode is None else runtime.BoundCodeMode(code_mode, lambda: self._resources),
        ))  # fmt: skip
        runtime.check_hosted_tools(self.parts.settings)
        runtime.check_extras(self.parts.settings)
        self._clock, self._pool = clock or runtime.SystemClock(), pool
        self._raises_on_stop, self.overrides = raise_on_stop, runtime.Overrides()
        is_traced = telemetry is not None or TELEMETRY_VARIABLE in os.environ
        self._resources = runtime.RunResources(
            store_location=store,
            pool=pool,
            deadlines=deadlines,
            clock=self._clock,
            random_source=random_source,
            watchers=tuple(watchers),
            approver=approver,
            retriever=retriever,
            hooks=hooking.match_tools(self.parts.tool_layout.tools, self.parts.sources),
            handovers=runtime.collect_handovers(handover, self.settings, self.tools),
            tracing=import_module(TELEMETRY_MODULE).open_tracing(telemetry) if is_traced else None,
            budget=budget,
        )

    @property
    def settings(self) -> Settings:
        return self.parts.settings

    @property
    def tools(self) -> Mapping[str, Tool]:
        """All tools by name, including hidden ones."""
        return self.parts.tool_layout.tools

    @property
    def handovers(self) -> tuple[Handover, ...]:
        return self._resources.handovers

    @property
    def budget(self) -> Budget | None:
        """The limits of every run; a run can only lower them."""
        return self._resources.budget

    @property
    def clock(self) -> Clock:
        return self._clock

    @property
    def store(self) -> Store:
        return self._resources.store

    @property
    def notes(self) -> Notes:
        """The notes of tenants and sessions: list, add, remove."""
        return runtime.Notes(self.store, memory=self.parts.settings.memory, clock=self._clock)

    @overload
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
        traceparent: str = "",
        context: C_contra | None = None,
        queue: bool = False,
        check: bool = False,
        output: OneOutput[R] | Sequence[OneOutput[R]],
        **options: Unpack[RunSettings],
    ) -> Result[R]: ...

    @overload
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
        traceparent: str = "",
        context: C_contra | None = None,
        queue: bool = False,
        check: bool = False,
        output: Mapping[str, Json],
        **options: Unpack[RunSettings],
    ) -> Result[Json]: ...

    @overload
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
        traceparent: str = "",
        context: C_contra | None = None,
        queue: bool = False,
        check: bool = False,
        **options: Unpack[RunOptions],
    ) -> Result[T]: ...

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
        traceparent: str = "",
        context: C_contra | None = None,
        queue: bool = False,
        check: bool = False,
        **options: Unpack[RunOptions],
    ) -> Result[Any]:
        """Run one prompt to its end.  With a session id, continue that session.

        A name you choose starts a new session if none exists; a generated id must exist.  `new=True`
        requires that the session does not exist yet, `new=False` that it does.  An imported `history`
        starts a new session.  `caller` and `tenant` identify the user to the policy and in the log.
        `traceparent` is the W3C header of the run's trace.  Tools get `context`, which is never stored.
        `queue` waits for a running session.  `options` replace settings; a resumed run keeps them.
        """
        given = prompt, session, new, budget, history, caller, tenant, traceparent, context, queue, options
        return self._check_stop(await self._prepare_run(*given)[1](), check)

    @overload
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
        traceparent: str = "",
        context: C_contra | None = None,
        queue: bool = False,
        check: bool = False,
        output: OneOutput[R] | Sequence[OneOutput[R]],
        **options: Unpack[RunSettings],
    ) -> Result[R]: ...

    @overload
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
        traceparent: str = "",
        context: C_contra | None = None,
        queue: bool = False,
        check: bool = False,
        output: Mapping[str, Json],
        **options: Unpack[RunSettings],
    ) -> Result[Json]: ...

    @overload
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
        traceparent: str = "",
        context: C_contra | None = None,
        queue: bool = False,
        check: bool = False,
        **options: Unpack[RunOptions],
    ) -> Result[T]: ...

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
        traceparent: str = "",
        context: C_contra | None = None,
        queue: bool = False,
        check: bool = False,
        **options: Unpack[RunOptions],
    ) -> Result[Any]:
        given = prompt, session, new, budget, history, caller, tenant, traceparent, context, queue, options
        name, start, _ = self._prepare_run(*given)
        return self._check_stop(runtime.run_in_background(start(), name, self.store), check)

    @overload
    def stream(
        self,
        prompt: Prompt,
        session: str | None = None,
        *,
        new: bool | None = None,
        budget: Budget | None = None,
        history: History | None = None,
        deltas: bool = True,
        caller: str = "",
        tenant: str = "",
        traceparent: str = "",
        context: C_contra | None = None,
        queue: bool = False,
        output: OneOutput[R] | Sequence[OneOutput[R]],
        **options: Unpack[RunSettings],
    ) -> Stream[R]: ...

    @overload
    def stream(
        self,
        prompt: Prompt,
        session: str | None = None,
        *,
        new: bool | None = None,
        budget: Budget | None = None,
        history: History | None = None,
        deltas: bool = True,
        caller: str = "",
        tenant: str = "",
        traceparent: str = "",
        context: C_contra | None = None,
        queue: bool = False,
        output: Mapping[str, Json],
        **options: Unpack[RunSettings],
    ) -> Stream[Json]: ...

    @overload
    def stream(
        self,
        prompt: Prompt,
        session: str | None = None,
        *,
        new: bool | None = None,
        budget: Budget | None = None,
        history: History | None = None,
        deltas: bool = True,
        caller: str = "",
        tenant: str = "",
        traceparent: str = "",
        context: C_contra | None = None,
        queue: bool = False,
        **options: Unpack[RunOptions],
    ) -> Stream[T]: ...

    def stream(
        self,
        prompt: Prompt,
        session: str | None = None,
        *,
        new: bool | None = None,
        budget: Budget | None = None,
        history: History | None = None,
        deltas: bool = True,
        caller: str = "",
        tenant: str = "",
        traceparent: str = "",
        context: C_contra | None = None,
        queue: bool = False,
        **options: Unpack[RunOptions],
    ) -> Stream[Any]:
        """`run`, yielding deltas and events, and a `FinalAnswer` at the end.

        `deltas=False` requests whole replies and yields only events.  Leaving the loop over the stream ends
        the run; `.start()` runs it independently, for any number of viewers.
        """
        given = prompt, session, new, budget, history, caller, tenant, traceparent, context, queue, options
        name, start, output_type = self._prepare_run(*given, stream=deltas)
        return runtime.Stream(
            name, start, lambda: self._read_result(name, options), output_type, raises=self._raises_on_stop
        )

    def stream_sync(
        self,
        prompt: Prompt,
        session: str | None = None,
        *,
        new: bool | None = None,
        budget: Budget | None = None,
        history: History | None = None,
        deltas: bool = True,
        caller: str = "",
        tenant: str = "",
        traceparent: str = "",
        context: C_contra | None = None,
        queue: bool = False,
        **options: Unpack[RunOptions],
    ) -> SyncStream[T]:
        """`stream` for code without an event loop: `for event in agent.stream_sync("…")`.

        The run is in the background; leaving the loop, or a `with` block around it, ends the run.
        """
        given = prompt, session, new, budget, history, caller, tenant, traceparent, context, queue, options
        name, start, output_type = self._prepare_run(*given, stream=deltas)
        stream = runtime.Stream(
            name, start, lambda: self._read_result(name, options), output_type, raises=self._raises_on_stop
        )
        return runtime.SyncStream(stream, self.store)

    async def resume(
        self,
        session: str,
        *,
        budget: Budget | None = None,
        tenant: str | None = None,
        trust_approvals: bool = False,
        take_over: bool = False,
        results: Mapping[str, CallResult] | None = None,
        context: C_contra | None = None,
        check: bool = False,
        **options: Unpack[RunOptions],
    ) -> Result[T]:
        """Finish an unfinished run.  `budget` replaces its own limits, also by higher ones; those of the agent for
        sessions and tenants stay.  `context` must be given again.

        With a `tenant`, raises `MisuseError` for another tenant's session.  Another user's approvals count only with
        `trust_approvals`.  `take_over` takes the session from a live process.  `results`: of `external_calls`, by id.
        """
        given = session, budget, tenant, context, options, (trust_approvals, take_over, results)
        return self._check_stop(await self._prepare_resume(*given)(), check)

    def resume_sync(
        self,
        session: str,
        *,
        budget: Budget | None = None,
        tenant: str | None = None,
        trust_approvals: bool = False,
        take_over: bool = False,
        results: Mapping[str, CallResult] | None = None,
        context: C_contra | None = None,
        check: bool = False,
        **options: Unpack[RunOptions],
    ) -> Result[T]:
        given = session, budget, tenant, context, options, (trust_approvals, take_over, results)
        done = runtime.run_in_background(self._prepare_resume(*given)(), session, self.store)
        return self._check_stop(done, check)

    def resume_stream(
        self,
        session: str,
        *,
        budget: Budget | None = None,
        tenant: str | None = None,
        trust_approvals: bool = False,
        take_over: bool = False,
        results: Mapping[str, CallResult] | None = None,
        context: C_contra | None = None,
        **options: Unpack[RunOptions],
    ) -> Stream[T]:
        """`resume`, yielding deltas and events."""
        given = session, budget, tenant, context, options, (trust_approvals, take_over, results)
        output_type = runtime.find_output_type(self.parts, options)

        def restored(parts: AgentParts[T]) -> None:
            stream.output_type = parts.output_type

        start = self._prepare_resume(*given, stream=True, on_restored=restored)
        stream = runtime.Stream(
            session,
            start,
            lambda: self._read_result(session, options),
            output_type,
            raises=self._raises_on_stop,
        )
        return stream

    async def approvals(self, session: str, *, tenant: str | None = None) -> tuple[PendingApproval, ...]:
        """List what a run that ended with `stop == "waiting"` waits for."""
        return await self.open_session(session).list_approvals(tenant)

    async def approved_calls(self, session: str, *, tenant: str | None = None) -> tuple[PendingApproval, ...]:
        """List the calls that are approved and have not started: `resume` runs them, `reject` drops them."""
        return await self.open_session(session).list_approved_calls(tenant)

    def approvals_sync(self, session: str, *, tenant: str | None = None) -> tuple[PendingApproval, ...]:
        """`approvals`, for code without an event loop."""
        return runtime.run_in_background(self.approvals(session, tenant=tenant), session, self.store)

    async def approve(
        self,
        session: str,
        approval: str,
        *,
        arguments: Mapping[str, Json] | str | None = None,
        reason: str = "",
        by: str = "",
        tenant: str | None = None,
    ) -> PendingApproval:
        """Allow a call, optionally with edited arguments; `resume` then runs it.

        `approval` is the id of the pending approval or of its call.  Approving a call in doubt runs it again.
        """
        runtime.encode_arguments(arguments)  # rejects what JSON cannot hold
        edited = arguments if arguments is None or isinstance(arguments, str) else dict(arguments)
        verdict = ApprovalVerdict(answer="approve", arguments=edited, reason=reason, by=by)
        return await self.open_session(session).answer(approval, verdict, tenant)

    async def reject(
        self, session: str, approval: str, *, reason: str = "", by: str = "", tenant: str | None = None
    ) -> PendingApproval:
        """Refuse a call; the model receives the reason. An approved call can be refused until it starts."""
        verdict = ApprovalVerdict(answer="reject", reason=reason, by=by)
        return await self.open_session(session).answer(approval, verdict, tenant)

    def approve_sync(
        self,
        session: str,
        approval: str,
        *,
        arguments: Mapping[str, Json] | str | None = None,
        reason: str = "",
        by: str = "",
        tenant: str | None = None,
    ) -> PendingApproval:
        """`approve`, for code without an event loop."""
        answering = self.approve(session, approval, arguments=arguments, reason=reason, by=by, tenant=tenant)
        return runtime.run_in_background(answering, session, self.store)

    def reject_sync(
        self, session: str, approval: str, *, reason: str = "", by: str = "", tenant: str | None = None
    ) -> PendingApproval:
        """`reject`, for code without an event loop."""
        answering = self.reject(session, approval, reason=reason, by=by, tenant=tenant)
        return runtime.run_in_background(answering, session, self.store)

    async def settle(
        self, session: str, approval: str, result: str, *, by: str = "", tenant: str | None = None
    ) -> PendingApproval:
        """Record that a call in doubt was executed, with its result."""
        verdict = ApprovalVerdict(answer="done", reason=result, by=by)
        return await self.open_session(session).answer(approval, verdict, tenant)

    async def compensate(
        self,
        session: str,
        *,
        settled: Collection[str] = (),
        tenant: str | None = None,
        context: C_contra | None = None,
    ) -> tuple[Compensation, ...]:
        """Undo the last run's calls, newest first, and return all of them with their state.

        Stops at the first failure or call in doubt; a second call continues there.  `settled` names calls
        that a person has already undone.
        """
        return await self.open_session(session, context=context).compensate(settled, tenant)

    def as_tool(
        self,
        name: str | None = None,
        description: str | None = None,
        *,
        budget: Budget | None = None,
        **options: Unpack[AgentToolOptions],
    ) -> AgentTool[C_contra]:
        """This agent as a tool of another: each call is a run in a session of its own, within `budget`."""
        runtime.check_types(budget)

        def run(prompt: str, session: str | None, context: object) -> Coroutine[None, None, Result[T]]:
            given = prompt, session, None, budget, None, "", "", "", context, False, runtime.RunOptions()
            return self._prepare_run(*given, inside=runtime.current_nested_run())[1]()

        types = (need.type for need in self.parts.context_needs)
        return runtime.AgentTool(
            name or self.settings.name,
            description,
            run,
            next(types, None),
            options,
            self._open_inner,
            self.parts.output_type,
            self,
        )

    async def fork(
        self, session: str, at: ForkPlace = None, *, new: str | None = None, tenant: str | None = None
    ) -> Fork:
        """Start a new session with the records of this one up to a message (`"m4"`) or a record (12).

        Copies and undoes nothing; `completed_actions` lists what the old session did after that point.
        """
        return await runtime.fork_session(self.store, session, at, new, clock=self._clock, tenant=tenant)

    def fork_sync(
        self, session: str, at: ForkPlace = None, *, new: str | None = None, tenant: str | None = None
    ) -> Fork:
        """`fork`, for code without an event loop."""
        return runtime.run_in_background(self.fork(session, at, new=new, tenant=tenant), "", self.store)

    async def branches(self, session: str, *, tenant: str | None = None) -> tuple[Branch, ...]:
        """List the session's family: every fork of it, and the session it was forked from."""
        return await runtime.list_branches(self.store, session, tenant=tenant)

    async def compare(self, a: str, b: str, *, tenant: str | None = None) -> Comparison:
        """Compare two sessions: the messages they share, and what each did afterwards."""
        return await runtime.compare_sessions(self.store, a, b, tenant=tenant)

    def override(
        self,
        *,
        model: ModelLike | Sequence[ModelLike] | None = None,
        tools: Iterable[Tool[C_contra] | Callable[..., object] | ToolSource] | None = None,
        store: StoreLike = None,
    ) -> AbstractContextManager[None]:
        """Replace parts of this agent for tests, until the `with` block ends.

            with agent.override(model=scripted("It is 42."), store=":memory:"):
                application.handle("What is it?")

        All runs of the agent use them, in every thread and wherever the agent is imported.  The agents that it
        hands over to and that are its tools get the model and the store too, unless they are overridden themselves;
        `tools` are those of this agent alone.
        """
        return runtime.override_agent(self, model=model, tools=tools, store=store)

    def exchange_parts(
        self, parts: AgentParts[T] | None = None, resources: RunResources | None = None
    ) -> tuple[AgentParts[T], RunResources]:
        """Use these in place of the agent's own, for `override`; returns those before."""
        before = self.parts, self._resources
        self.parts, self._resources = parts or self.parts, resources or self._resources
        return before

    def _check_stop(self, result: Result[T], check: bool) -> Result[T]:  # noqa: FBT001
        """Raise `RunStopped` for a run without an answer, if the caller or the agent asked for it."""
        return result.raise_for_stop() if check or self._raises_on_stop else result

    def _prepare_run(
        self,
        prompt: Prompt,
        session: str | None,
        new: bool | None,  # noqa: FBT001
        budget: Budget | None,
        history: History | None,
        caller: str,
        tenant: str,
        traceparent: str,
        context: object,
        queue: bool,  # noqa: FBT001
        options: RunOptions,
        *,
        stream: bool = False,
        inside: NestedRun | None = None,
        gate: EffectGate | None = None,
    ) -> tuple[str, Callable[..., Coroutine[None, None, Result[T]]], OutputType[T] | None]:
        """Check the arguments of a run, `inside` a tool call or not.

        Returns the session, the run's function and the type of its answer.
        """
        runtime.check_types(budget, history)
        self.parts = runtime.renew_addresses(self.parts)
        parts = runtime.override_parts(self.parts, options) if options else self.parts
        if "output" in options:
            runtime.check_run_output(self.handovers, parts.settings)
        if not traceparent and (tracing := self._resources.tracing) and runtime.current_nested_run() is None:
            traceparent = tracing.read_caller()
        runtime.check_context(runtime.list_certain_needs(parts.context_needs), context, "run")
        runtime.check_context(
            (need for each in self.handovers for need in each.list_context_needs()), context, "run"
        )
        limits = self.budget, budget
        given = runtime.make_prompted(prompt, limits, caller, tenant, traceparent, history)
        prompted = runtime.apply_parent_context(given)
        runtime.check_shared_limits(prompted.budget, prompted.tenant, prompted.caller)
        name, fresh = runtime.resolve_session(session, new=new, now=self._clock.now())
        # A run inside a tool inherits the tenant of the outer run unless it names another.
        owner = tenant if isinstance(tenant, CrossTenant) else prompted.tenant
        own = runtime.SessionOptions(stream=stream, context=context, inside=inside, gate=gate)
        start = partial(self._start_run, name, parts, own, prompted, history, fresh, owner, queue)
        return name, start, parts.output_type

    async def _start_run(
        self,
        name: str,
        parts: AgentParts[T],
        options: SessionOptions,
        prompted: Prompted,
        history: History | None,
        new: bool | None,  # noqa: FBT001
        owner: str,
        queue: bool,  # noqa: FBT001
        control: RunControl | None = None,
    ) -> Result[Any]:
        """Run a prompt that was checked; not a closure, which would hold a cell for each argument."""
        parts.model_chain.check_price(prompted.budget, self._pool, self._clock.now())
        options["control"] = control
        opened = self._resources.open_session(name, parts, **options)
        if options.get("inside") is not None:
            state = await opened.prompt_once(prompted)
        else:
            state = await opened.prompt(prompted, history, new=new, tenant=owner, queue=queue)
        return await runtime.make_session_result(opened, state, parts.output_type)

    def _prepare_resume(
        self,
        session: str,
        budget: Budget | None,
        tenant: str | None,
        context: object,
        options: RunOptions,
        flags: tuple[bool, bool, Mapping[str, CallResult] | None],
        *,
        stream: bool = False,
        on_restored: Callable[[AgentParts[T]], None] | None = None,
    ) -> Callable[..., Coroutine[None, None, Result[T]]]:
        """Check the arguments of `resume`; returns the function that finishes the run."""
        runtime.check_types(budget)
        self.parts = runtime.renew_addresses(self.parts)
        if "output" in options:
            runtime.check_run_output(
                self.handovers, runtime.override_parts(self.parts, {"output": options["output"]}).settings
            )
        shared = self._resources, runtime.check_session(session), self.parts, options, budget

        async def start(control: RunControl | None = None) -> Result[T]:
            opened = runtime.open_to_resume(
                *shared, stream=stream, control=control, context=context, on_restored=on_restored
            )
            done = await opened.resume(budget, tenant, runtime.ResumeFlags(*flags))
            output_type = runtime.find_output_type(self.parts, options, done)
            return await runtime.make_session_result(opened, done, output_type)

        return start

    def open_session(self, session: str, **options: Unpack[SessionOptions]) -> Session:
        """Open a session for this agent; nothing is read or written yet."""
        return self._resources.open_session(session, self.parts, **options)

    def _open_inner(self, session: str, context: object, store: Store) -> Session:
        """Open the session of a run inside a tool; `store` is that of the outer run."""
        resources = (
            self._resources.use_store(store) if self._resources.store_location is None else self._resources
        )
        return resources.open_session(session, self.parts, context=context)

    async def _read_result(self, session: str, options: RunOptions) -> Result[T]:
        """Build the result from the log as it is."""
        opened = self.open_session(session)
        driver = opened.new_driver()
        await driver.restore()
        output_type = runtime.find_output_type(self.parts, options, driver.state)
        return await runtime.make_session_result(opened, driver.state, output_type)
