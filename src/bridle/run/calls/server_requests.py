"""Answers requests that the server of a tool makes during a call: to the model, or to a person.

Each request is recorded before anyone is asked, and its answer before the server gets it.  A call that a crash
interrupted and that runs again gets the same answers: those of a person from the log, those of the model from the
session in which it was asked.  The model is asked in a run of its own inside the tool call, so the limits of the
outer run hold (run/budget/nested.py).

A person must answer while the call runs: the server holds the other half of it, and it cannot be continued later.
Without an approver, or if the approver leaves the question open, the answer is no.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace as replace_fields
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from bridle.core.calls.argument_changes import complete_arguments
from bridle.core.calls.pending import PendingCall
from bridle.core.calls.permission import PermissionDecision
from bridle.core.calls.server_requests import (
    REQUESTS_MAX,
    bind_request,
    decide_request,
    describe_request,
    find_request_answer,
    find_running_call,
    name_request,
    show_request,
)
from bridle.core.calls.validation import ArgumentProblem, check_arguments
from bridle.core.state import State
from bridle.ports.store import Store
from bridle.run.agent_settings import TEXT_OUTPUT, AgentParts, make_parts
from bridle.run.budget.nested import apply_parent_context, current_nested_run
from bridle.run.validate_input import check_chosen, make_prompted
from bridle.values.calls import (
    ApprovalVerdict,
    ElicitationRequest,
    PendingApproval,
    RequestRefused,
    SamplingRequest,
    ServerAnswered,
    ServerAsked,
    ServerReply,
    ServerRequest,
)
from bridle.values.errors import MisuseError, Unusable
from bridle.values.events import Event
from bridle.values.message import Media, Stop, Text
from bridle.values.request import Sampling, ToolSpec
from bridle.values.result import History
from bridle.values.settings import RunOverride
from bridle.values.text import escape_text

from .approval import Approver, encode_arguments, make_approval_id
from .approval_proof import is_request_answer_proved, sign_request_answer
from .verdicts import read_verdict

if TYPE_CHECKING:
    from bridle.run.context.resources import RunResources

LOG = logging.getLogger("bridle")
AskModelForServer = Callable[[SamplingRequest, str], Awaitable[State]]
"""Runs a request of a server in the session of that id."""
INVALID_ANSWERS_MAX = 3
"""Attempts a person has to give values that fit the schema."""
BY_POLICY = "policy"
NO_APPROVER = "there is no person to ask"
LEFT_OPEN = "the person did not answer"


class AskedRun(Protocol):
    """The run whose tool is called: its driver."""

    session: str
    state: State
    store: Store
    approver: Approver | None

    async def record(self, event: Event) -> None: ...


class ServerRequests:
    """The requests of servers during the calls of one driver."""

    def __init__(self, run: AskedRun, ask_model: AskModelForServer) -> None:
        self._run, self._ask_model = run, ask_model
        self._counts: dict[tuple[str, int], Counter[str]] = {}
        """Requests by content of each attempt of a call."""
        self._person = asyncio.Lock()

    async def answer(self, call_id: str, request: ServerRequest) -> ServerReply:
        """The reply to a request during a call; raises `RequestRefused` if it is not allowed."""
        await self._wait_until_recorded()
        item = find_running_call(self._run.state, call_id)
        if item is None:
            raise RequestRefused("the call has ended")
        shown = show_request(request, item.call.name)
        binding = bind_request(item, request, self._count(item, shown))
        decided = decide_request(self._run.state, request, shown)
        answered = self._find_answer(item, binding) if decided.permission != "deny" else None
        if answered is None:
            answered = await self._decide(item, request, shown, binding, decided)
        if isinstance(request, ElicitationRequest):
            return ServerReply(action=answered.action, text=answered.content)
        if answered.action != "accept":
            raise RequestRefused(answered.reason or "the request was refused")
        return await self._sample(request, f"sampling-{item.key}-{binding[:12]}")

    async def _wait_until_recorded(self) -> None:
        """Wait until the call is in the log: it may have been started before its reply was complete."""
        nested = current_nested_run()
        while nested is not None and not nested.is_confirmed and not nested.is_over():
            turn = nested.parent_budget.wait_queue.join()
            try:
                await turn
            finally:
                nested.parent_budget.wait_queue.leave(turn)

    def _count(self, item: PendingCall, shown: str) -> int:
        """The number of this request among equal ones of the attempt; raises `RequestRefused` if there are too many."""
        counts = self._counts.setdefault((item.call.id, item.attempt), Counter())
        counts[shown] += 1
        # guard: server-request-limit
        if counts.total() > REQUESTS_MAX:
            raise RequestRefused(f"at most {REQUESTS_MAX} requests are answered during one call")
        return counts[shown]

    def _find_answer(self, item: PendingCall, binding: str) -> ServerAnswered | None:
        """The answer that the log holds for the request, if this user gave it; the policy decides again."""
        found = find_request_answer(item, binding)
        run = self._run
        if found is not None and found.by == BY_POLICY:
            return None
        # guard: request-answer-proof
        if found is None or not is_request_answer_proved(run.store, run.session, run.state, found):
            return None
        return found

    async def _decide(
        self,
        item: PendingCall,
        request: ServerRequest,
        shown: str,
        binding: str,
        decided: PermissionDecision,
    ) -> ServerAnswered:
        run = self._run
        common: dict[str, Any] = {
            "call_id": item.call.id,
            "attempt": item.attempt,
            "kind": request.kind,
            "server": request.server,
            "binding": binding,
        }
        await run.record(ServerAsked(**common, request=shown, rule=decided.rule))
        if decided.permission == "deny":
            answer = ServerAnswered(
                **common, action="decline", reason=f"denied by {decided.rule}", by=BY_POLICY
            )
        elif decided.permission == "allow" and isinstance(request, SamplingRequest):
            answer = ServerAnswered(**common, action="accept", reason=decided.rule, by=BY_POLICY)
        else:
            question = self._make_question(item, request, shown, binding, decided.rule)
            async with self._person:  # one question at a time
                answer = await self._ask_person(request, question, ServerAnswered(**common, action="cancel"))
        answer = replace(answer, proof=self._sign(answer))
        await run.record(answer)
        return answer

    def _sign(self, answer: ServerAnswered) -> str:
        """Sign an answer if there is a key; without a proof, the question is asked again after a crash."""
        run = self._run
        try:
            return sign_request_answer(run.store, run.session, run.state, answer)
        except Unusable as error:
            LOG.warning("%s", escape_text(f"session {run.session}: {error}"))
            return ""

    def _make_question(
        self, item: PendingCall, request: ServerRequest, shown: str, binding: str, rule: str
    ) -> PendingApproval:
        return PendingApproval(
            id=make_approval_id(self._run.session, binding),
            session=self._run.session,
            call_id=item.call.id,
            tool=name_request(request),
            arguments=shown,
            rule=describe_request(request, item.call.name, rule),
            question=request.kind,
            asked_at=self._run.state.now,
            binding=binding,
        )

    async def _ask_person(
        self, request: ServerRequest, question: PendingApproval, unanswered: ServerAnswered
    ) -> ServerAnswered:
        approver = self._run.approver
        if approver is None:
            return replace(unanswered, action="decline", reason=NO_APPROVER)
        problem = ""
        for _ in range(INVALID_ANSWERS_MAX):
            asked = replace(question, rule=f"{question.rule}; {problem}") if problem else question
            given: object = approver(asked)
            if not isawaitable(given):
                raise MisuseError(f"the function approver=… must be async; it returned {given!r}")
            verdict = check_chosen("approver", await given, ApprovalVerdict)
            if verdict is None:
                return replace(unanswered, reason=LEFT_OPEN)
            verdict = read_verdict(verdict)
            said = replace(unanswered, reason=verdict.reason, by=verdict.by)
            if verdict.answer != "approve":
                return replace(said, action="decline")
            content, problem = _read_content(request, verdict)
            if not problem:
                return replace(said, action="accept", content=content)
        return replace(unanswered, reason=problem)

    async def _sample(self, request: SamplingRequest, session: str) -> ServerReply:
        state = await self._ask_model(request, session)
        messages, end = state.conversation.transcript.messages, state.run.end
        last = next((each for each in reversed(messages) if each.role == "assistant"), None)
        text = last.text if last is not None and last.stop is Stop.LENGTH else ""
        is_cut = end.stop == "steps" and bool(text)
        if end.stop != "done" and not is_cut:
            raise RequestRefused(f"the model gave no answer: {end.reason or end.stop}")
        return ServerReply(text=text if is_cut else end.answer, model=state.settings.model.id, is_cut=is_cut)


def _read_content(request: ServerRequest, verdict: ApprovalVerdict) -> tuple[str, str]:
    """The person's values with defaults filled in, and the problem with them or ""."""
    if not isinstance(request, ElicitationRequest) or request.url:
        return "", ""
    spec = ToolSpec(name=name_request(request), parameters=request.fields)
    try:
        content = complete_arguments(spec, encode_arguments(verdict.arguments) or "{}")
    except MisuseError as error:
        return "", str(error)
    checked = check_arguments(spec, content)
    if not isinstance(checked, ArgumentProblem):
        return content, ""
    found = [line.removeprefix("- ") for line in checked.text.split("\n") if line.startswith("- ")]
    return "", f"the answer does not fit: {'; '.join(found) or checked.text}"


async def ask_model_for_server(
    resources: "RunResources", parts: AgentParts[Any], context: object, request: SamplingRequest, session: str
) -> State:
    """Run a server's request to the model, in a session of its own inside the current tool call."""
    inside = current_nested_run()
    assert inside is not None
    *earlier, last = request.messages
    prompt = tuple(part for part in last.parts if isinstance(part, Text | Media))
    budget = replace(request.budget, steps=1)  # one reply, even if the server's limit cuts it off
    prompted = apply_parent_context(make_prompted(prompt, (None, budget), "", ""))
    asked = make_sampling_parts(parts, request)
    asked.model_chain.check_price(prompted.budget, resources.pool, resources.clock.now())
    # The outer run draws on the agent's shared limits for it.
    own = replace_fields(resources, handovers=(), budget=None, store_location=inside.parent_budget.run.store)
    opened = own.open_session(session, asked, inside=inside, context=context)
    return await opened.prompt_once(prompted, History(messages=tuple(earlier)) if earlier else None)


def make_sampling_parts(parts: AgentParts[Any], request: SamplingRequest) -> AgentParts[Any]:
    """The agent's models, hooks and policy, without its tools, instructions and output type."""
    inputs = parts.inputs
    limit = inputs.settings.max_tokens
    settings = replace(
        inputs.settings,
        max_tokens=request.max_tokens if limit is None else min(limit, request.max_tokens),
        memory=None,
        retrieval=None,
    )
    options = Sampling(temperature=request.temperature, stop_sequences=request.stop_sequences)
    made = make_parts(
        replace_fields(
            inputs,
            settings=settings,
            tools=(),
            tool_index=None,
            tool_choice="auto",
            instructions=request.instructions or None,
            thinking=None,
            sampling=options,
            output=TEXT_OUTPUT,
            validate=None,
        )
    )
    # The server wrote them: input hooks judge them as texts from outside.
    foreign = tuple(RunOverride(option=option) for option in ("instructions", "sampling"))
    return replace_fields(made, settings=replace(made.settings, overrides=foreign))
