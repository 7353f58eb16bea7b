"""Executes tool effects for a driver and records the outcome of each as one event.

Decides nothing: core/calls chooses which calls may run and when.  Crash safety rests on one rule kept here:
`ToolStarted` is durable before a tool runs, `ToolFinished` is its receipt.

    run             a call, with its deadline and idempotency key
    probe           ask a tool what became of an earlier attempt
    await_answers   put questions to the approver and record the answers
    reveal_tools    make searched tools visible to the model
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import cached_property

from msgspec.structs import replace

from bridle.core.calls.catalogue import choose_initial_tools
from bridle.core.calls.dispatch import skip_expired
from bridle.core.calls.early_start import count_reads, start_early
from bridle.core.calls.orphaned import is_cut_in_doubt
from bridle.core.calls.pending import Receipt
from bridle.core.effects import (
    AwaitApprovals,
    FindTools,
    ProbeTool,
    RequestApproval,
    RevealTools,
    RunTool,
    SkipCall,
    make_approval_question,
)
from bridle.core.evaluate_reply import OUTPUT_ACCEPTED
from bridle.core.state import State
from bridle.ports.tool import Tool, ToolSource
from bridle.run.budget.nested import NestedRun, ParentBudget
from bridle.run.clock import SessionClock
from bridle.run.context.run_context import RunContexts
from bridle.run.known_secrets import KnownSecrets
from bridle.run.result import NO_CHECKS, OutputChecker
from bridle.tools.search.search_tools import SearchTools
from bridle.values import events as e
from bridle.values.calls import (
    ApprovalVerdict,
    PendingApproval,
    ResourceClaim,
    RunConclusion,
    StoredResult,
    ToolError,
)
from bridle.values.errors import MisuseError, Unusable
from bridle.values.events import ResultSource
from bridle.values.message import Reply, Text, ToolCall, ToolResult
from bridle.values.result import CallReady
from bridle.values.text import escape_text

from .approval import (
    ANSWERED,
    EXPIRED,
    Approver,
    PersonQuestions,
    describe_waiting,
    make_pending_approval,
)
from .catalogue import find_initial_tools
from .raised_errors import report_error
from .run_tool import FinishedCall, find_resource_claim, preview_call, probe_tool, run_tool, wait_for_task
from .tool_sources import find_tool_changes
from .verdicts import encode_edited, read_verdict

LOG = logging.getLogger("bridle")
INVALID_EDITS_MAX = 3
"""Attempts an approver has to supply arguments that the tool accepts."""


class ToolRunner:
    """Runs the tool calls of one session."""

    def __init__(
        self,
        contexts: RunContexts,
        tools: dict[str, Tool],
        clock: SessionClock,
        record: Callable[[e.Event], Awaitable[None]],
        fit_result: Callable[[ToolResult], Awaitable[tuple[ToolResult, StoredResult | None]]],
        parent_budget: ParentBudget,
        approver: Approver | None = None,
        search: SearchTools | None = None,
        prove: Callable[[e.ApprovalAnswered], str] = lambda _: "",
        sources: Sequence[ToolSource] = (),
        secrets: KnownSecrets | None = None,
        output: OutputChecker = NO_CHECKS,
    ) -> None:
        """Prepare the runner of one session.

        `contexts` makes the `RunContext` of each call.  `fit_result` stores long results and returns the
        excerpt to log.  `parent_budget` limits runs inside the tools.  `approver` asks a person during the
        run.  `search` finds hidden tools.  `prove` signs approvals.  `sources` may add tools during the run.
        `secrets` are removed from results.  `output` checks an answer with which a tool ends the run.
        """
        self._contexts, self._session, self._tools = contexts, contexts.session, tools
        self._clock, self._record = clock, record
        self._fit_result, self._parent_budget, self._prove = fit_result, parent_budget, prove
        self._approver, self._search, self._secrets = approver, search, secrets
        self._sources, self._sources_lock, self._output = sources, asyncio.Lock(), output
        self.early_calls = EarlyCalls()
        self._edit_errors: dict[str, list[str]] = {}

    @cached_property
    def person(self) -> PersonQuestions:
        """The questions to a person; made when the first one is asked."""
        return PersonQuestions(self._approver, self._clock)

    async def run(self, effect: RunTool) -> None:
        """Record the intent, execute the call, record its result."""
        call = effect.call
        counts = effect.attempt == 1 and not effect.gives_output
        admitted = await self._parent_budget.admit_call(call, first=counts)
        if admitted.refusal:
            notice = Text(text=admitted.refusal)
            refusal = ToolResult(call_id=call.id, parts=(notice,), outcome="cancelled")
            await self.finish(call, refusal, admitted.rule)
            return
        started = e.ToolStarted(
            call_id=call.id,
            name=call.name,
            key=effect.key,
            attempt=effect.attempt,
            rule=effect.rule,
            arguments=call.arguments,
            wait_seconds=admitted.waited,
            wait_source="rate-limit" if admitted.waited else "",
            epoch=self._parent_budget.run.fence.epoch or 0,
        )
        await self._record(started)
        early = self.early_calls.take_result(call)
        has_lost_run = False
        if early is not None:
            self._parent_budget.confirm_call(call.id)
            finished = await early
        else:
            nested = self._parent_budget.begin_call(call.id)
            # guard: tool-run-once
            finished = await self._run_tool(effect, nested)
            has_lost_run = nested.has_lost_run
        result = finished.result
        if call.id in self._parent_budget.waiting:
            await self._record(self._parent_budget.waiting.pop(call.id))
            self._parent_budget.end_call(call.id)
            return
        if self._sources:
            await self._add_new_tools()
        if result.outcome == "unknown" and not has_lost_run:
            await self._record_interruption(effect, result)
        elif finished.error is not None or finished.end is not None:
            await self._finish_unusual(call, finished)
        elif effect.gives_output and not result.is_error:
            await self._finish_with_output(call, result)
        else:
            await self.finish(call, result)

    async def _finish_unusual(self, call: ToolCall, finished: FinishedCall) -> None:
        """Record the result of a tool that raised an exception it did not declare, or that ends the run."""
        result, error, conclusion = finished.result, finished.error, None
        if finished.end is not None:
            try:
                conclusion = self._output.conclude_run(finished.end)
            except (TypeError, ValueError) as problem:
                why = f"tool `{call.name}` ended the run with an answer that cannot be used: {problem}"
                result, error = replace(result, parts=(Text(text=why),), outcome="error"), problem
                conclusion = RunConclusion(stop="failed", reason=why)
                problem.__traceback__ = finished.end.__traceback__  # the place to look at
        raised = report_error(self._tools[call.name], call, error, self._secrets)
        await self.finish(call, result, raised=raised, conclusion=conclusion)

    async def _record_interruption(self, effect: RunTool, result: ToolResult) -> None:
        call = effect.call
        await self._record(
            e.ToolInterrupted(
                call_id=call.id,
                attempt=effect.attempt,
                why=result.text,
                name=call.name,
                arguments=call.arguments,
            )
        )
        self._parent_budget.end_call(call.id)

    async def _add_new_tools(self) -> None:
        """Record tools that servers have added, before the result after which the model may call them."""
        async with self._sources_lock:
            tools, reports = await find_tool_changes(
                self._sources, self._parent_budget.run.state, self._tools
            )
            self._tools.update({tool.spec.name: tool for tool in tools})
            for report in reports:
                await self._record(report)

    async def _finish_with_output(
        self, call: ToolCall, result: ToolResult, rule: str = "", source: ResultSource = "run"
    ) -> None:
        """Record the answer that an output function returned; the model only reads that it was accepted."""
        if self._secrets is not None:
            result = self._secrets.redact_result(result)
        accepted = replace(result, parts=(Text(text=OUTPUT_ACCEPTED),))
        await self._record(
            e.ToolFinished(
                result=accepted,
                rule=rule,
                source=source,
                name=call.name,
                arguments=call.arguments,
                output=result.text,
            )
        )
        self._parent_budget.end_call(result.call_id)

    async def finish(
        self,
        call: ToolCall,
        result: ToolResult,
        rule: str = "",
        source: ResultSource = "run",
        *,
        raised: ToolError | None = None,
        conclusion: RunConclusion | None = None,
    ) -> None:
        """Record a result; the size of the excerpt for the model is decided here, once."""
        if self._secrets is not None:
            # guard: tool-result-redacted
            result = self._secrets.redact_result(result)
            conclusion = None if conclusion is None else self._secrets.redact_value(conclusion)
        excerpt, whole = await self._fit_result(result)
        await self._record(
            e.ToolFinished(
                result=excerpt,
                rule=rule,
                source=source,
                stored_result=whole,
                name=call.name,
                arguments=call.arguments,
                raised=raised,
                conclusion=conclusion,
            )
        )
        self._parent_budget.end_call(result.call_id)

    async def skip_call(self, effect: SkipCall) -> None:
        """Record a result for a call that is not run."""
        result = ToolResult(call_id=effect.call.id, parts=(Text(text=effect.why),), outcome=effect.outcome)
        if effect.gives_output:
            await self._finish_with_output(effect.call, result, effect.rule, effect.source)
        elif effect.receipt is None:
            await self.finish(effect.call, result, effect.rule, effect.source)
        else:
            await self._finish_from_receipt(effect.call, result, effect.receipt)

    async def _finish_from_receipt(self, call: ToolCall, result: ToolResult, receipt: Receipt) -> None:
        """Record an earlier result again, with the excerpt it had then."""
        earlier = receipt.result
        again = replace(result, parts=(*result.parts, *earlier.parts), reveals_tools=earlier.reveals_tools)
        await self._record(
            e.ToolFinished(
                result=again,
                source="receipt",
                same_as_call=earlier.call_id,
                stored_result=receipt.stored_result,
                name=call.name,
                arguments=call.arguments,
                conclusion=receipt.conclusion,
            )
        )

    def start_early(self, state: State, delta: CallReady) -> None:
        effect = self.early_calls.offer_call(state, delta)
        if effect is not None and not self._parent_budget.limits_tool_calls(effect.call.name):
            nested = self._parent_budget.begin_call(effect.call.id, early=True)
            self.early_calls.start(effect, self._run_tool(effect, nested))

    async def find_initial_tools(self, effect: FindTools, state: State) -> None:
        found, error = await find_initial_tools(
            self._search, effect.query, effect.limit, self._clock.seconds_left(effect.deadline)
        )
        await self.reveal_tools(choose_initial_tools(state, found, error))

    async def reveal_tools(self, effect: RevealTools) -> None:
        await self._record(
            e.ToolsRevealed(
                names=effect.names,
                why=effect.why,
                initial=effect.initial,
                tokens=effect.tokens,
                uncached_tokens=effect.uncached_tokens,
            )
        )

    async def probe(self, effect: ProbeTool) -> None:
        tool = self._tools[effect.call.name]
        context = self._contexts.for_call(effect)
        found = await probe_tool(tool, effect, context, self._call_seconds(effect))
        if found is None:
            call, attempt = effect.call, effect.attempt
            await self._record(
                e.ToolProbed(call_id=call.id, attempt=attempt, name=call.name, arguments=call.arguments)
            )
        else:
            await self.finish(effect.call, found, source="probe")

    async def request_approval(self, effect: RequestApproval) -> None:
        """Record a question to a person, with the tool's preview of the call."""
        shown = await preview_call(self._tools, effect.call) if effect.question == "run" else ""
        await self._record(make_approval_question(effect, shown))

    async def await_answers(self, effect: AwaitApprovals, state: State) -> None:
        asked = ((item, make_pending_approval(self._session, item, state)) for item in effect.calls)
        questions = [(item, question) for item, question in asked if question is not None]
        if not questions:
            await self._end_waiting(effect, state)
            return
        for item, question in questions:
            if question.binding in self._edit_errors:
                errors = self._edit_errors[question.binding]
                question = replace(question, rule=f"{question.rule}; {errors[-1]}")  # noqa: PLW2901
            verdict = await self.person.ask(question)
            if verdict == ANSWERED:
                continue
            if verdict == EXPIRED:
                skip = skip_expired(item)
                result = ToolResult(call_id=item.call.id, parts=(Text(text=skip.why),), outcome=skip.outcome)
                await self.finish(item.call, result, skip.rule)
                continue
            if verdict is None:
                await self._end_waiting(effect, state)
                return
            try:
                await self._record_answer(question, verdict, self._prove_if_possible)
            except MisuseError as error:
                self.person.release(question.binding)
                errors = self._edit_errors.setdefault(question.binding, [])
                errors.append(str(error))
                if verdict.arguments is None or len(errors) >= INVALID_EDITS_MAX:
                    raise
                return  # the question is still open, so it is asked again, with the error

    async def _end_waiting(self, effect: AwaitApprovals, state: State) -> None:
        await self._record(e.RunEnded(stop="waiting", reason=describe_waiting(effect.calls, state)))

    async def answer(
        self,
        question: PendingApproval,
        verdict: ApprovalVerdict,
        *,
        is_uncompared: bool = False,
        replaces: int = 0,
    ) -> None:
        """Record a person's answer, for a run that is resumed later, perhaps in another process."""
        await self._record_answer(
            question, verdict, self._prove, is_uncompared=is_uncompared, replaces=replaces
        )

    async def take_answer(self, event: e.ApprovalAnswered) -> None:
        """Record an answer that another process sent, with the claim of this process's tools."""
        claim = None
        if event.arguments is not None:
            edited = ToolCall(id=event.call_id, name=event.name, arguments=event.arguments)
            claim = find_resource_claim(self._tools, edited)
        await self._record(replace(event, resource_claim=claim))

    def _prove_if_possible(self, event: e.ApprovalAnswered) -> str:
        """Sign an answer if there is a key; without a proof, the question is asked again after a crash."""
        try:
            return self._prove(event)
        except Unusable as error:
            # guard: approval-key-warning-escaped
            LOG.warning("%s", escape_text(f"session {self._session}: {error}"))
            return ""

    async def _record_answer(
        self,
        question: PendingApproval,
        verdict: ApprovalVerdict,
        prove: Callable[[e.ApprovalAnswered], str],
        *,
        is_uncompared: bool = False,
        replaces: int = 0,
    ) -> None:
        """Record an answer, with the tool's resource claim for edited arguments."""
        # guard: verdict-form
        verdict = read_verdict(verdict)
        arguments = encode_edited(question.arguments, verdict.arguments)
        edited = None
        if arguments is not None:
            edited = ToolCall(id=question.call_id, name=question.tool, arguments=arguments)
        event = e.ApprovalAnswered(
            call_id=question.call_id,
            binding=question.binding,
            answer=verdict.answer,
            arguments=arguments,
            reason=verdict.reason,
            by=verdict.by,
            resource_claim=find_resource_claim(self._tools, edited) if edited is not None else None,
            name=question.tool,
            asked_arguments=question.arguments,
            is_uncompared=is_uncompared,
            replaces=replaces,
        )
        await self._record(replace(event, proof=prove(event)))

    def list_resource_claims(self, reply: Reply) -> tuple[ResourceClaim, ...]:
        found: list[ResourceClaim] = []
        for part in reply.parts:
            if type(part) is ToolCall and (claim := find_resource_claim(self._tools, part)) is not None:
                found.append(claim)
        return tuple(found)

    async def _run_tool(self, effect: RunTool, nested: NestedRun) -> FinishedCall:
        with nested:
            tool, context = self._tools[effect.call.name], self._contexts.for_call(effect)
            nested.traceparent = context.traceparent
            left, run = self._call_seconds(effect), self._parent_budget
            return await run_tool(
                tool,
                effect,
                context,
                left,
                lambda: is_cut_in_doubt(run.state, effect),
                lambda: self._clock.seconds_left(effect.deadline),
            )

    def _call_seconds(self, effect: RunTool | ProbeTool) -> float | None:
        """The tool's timeout, or the time left for the run if that is shorter."""
        limit, left = effect.timeout_seconds, self._clock.seconds_left(effect.deadline)
        return left if limit is None else limit if left is None else min(limit, left)


class EarlyCalls:
    """Tool calls that were started before their reply was complete.

    core/calls/early_start.py decides which calls may start early.  Once the reply is complete, a call takes
    its result from here if name and arguments are identical; other calls are cancelled and discarded.
    """

    def __init__(self) -> None:
        self._ready_calls: dict[int, ToolCall] = {}
        self._read_count = 0
        self._started: dict[str, tuple[ToolCall, asyncio.Task[FinishedCall]]] = {}
        self.discarded_tools: tuple[str, ...] = ()
        """Names of the tools cancelled by the last `discard`."""

    def offer_call(self, state: State, delta: CallReady) -> RunTool | None:
        """The call to start now, if any.  A reply that starts over does not start a call twice."""
        self._ready_calls[delta.index] = delta.call
        if delta.index < self._read_count:
            self._read_count = 0  # the reply started over
        self._read_count = count_reads(state, self._ready_calls, self._read_count)
        effect = start_early(state, self._ready_calls, delta.index, len(self._started), self._read_count)
        return None if effect is None or effect.call.id in self._started else effect

    def start(self, effect: RunTool, work: Coroutine[None, None, FinishedCall]) -> None:
        self._started[effect.call.id] = effect.call, asyncio.create_task(work)

    def take_result(self, call: ToolCall) -> Awaitable[FinishedCall] | None:
        """The result of the identical call that was started early; None if there is none."""
        started = self._started.get(call.id)
        if started is None or (started[0].name, started[0].arguments) != (call.name, call.arguments):
            return None
        del self._started[call.id]
        return _await_early_result(started[1])

    async def discard(self) -> tuple[str, ...]:
        """Cancel all calls that were not taken and return the names of their tools."""
        self._ready_calls.clear()
        self._read_count = 0
        self.discarded_tools = ()
        if not self._started:
            return ()
        left, self._started = self._started, {}
        self.discarded_tools = tuple(call.name for call, _ in left.values())
        for _, task in left.values():
            task.cancel()
        await asyncio.gather(*(task for _, task in left.values()), return_exceptions=True)
        return self.discarded_tools


async def _await_early_result(task: "asyncio.Task[FinishedCall]") -> FinishedCall:
    """Await an early result in as many event loop turns as a fresh call, so that logs are identical."""
    try:
        await asyncio.sleep(0)
        await wait_for_task(task)
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        raise
    return task.result()
