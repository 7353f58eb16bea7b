"""A simulated provider with state: decodes a request, checks it, answers it and delivers the answer.

`answer` serves the `sim:` models and the HTTP server. A request is decoded by its family's codec, checked
against the family's rules, answered by the responder, measured, and delivered as a timeline. The state kept
between requests is: refusals, cached prompts, stored objects, and the failures each conversation has already
received.

The Python audit events `bridle.heard` and `bridle.refused` report every request to any simulator in this
process, and every refusal.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from hashlib import blake2b
from random import Random
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from bridle.core.recovery.failure_policy import FAILURE_POLICY
from bridle.ports.clock import Clock
from bridle.ports.codec import HttpReply
from bridle.ports.transport import OutgoingRequest, ResponseTimeline
from bridle.providers import load_codec
from bridle.run.clock import SystemClock
from bridle.sim.cache.cache_report import CacheReport, PromptHistory, add_cache_report
from bridle.sim.cache.prompt_cache import PromptLayout, SimulatedPromptCache
from bridle.sim.cache.token_estimate import count_prompt_tokens
from bridle.sim.faults.actions import FaultTarget
from bridle.sim.faults.catalogue import FaultPlan, PlannedFault
from bridle.sim.responder.decision import (
    Responder,
    ResponderDecision,
    SimulatedFailure,
    as_decision,
)
from bridle.sim.responder.hosted_uses import add_hosted_usage
from bridle.sim.responder.rule_based import respond
from bridle.sim.rules.engine import find_violation
from bridle.sim.rules.profiles import apply_quirks
from bridle.transports.recorded import RecordedExchange, RecordedReply, scrub_exchange
from bridle.values.base import Value
from bridle.values.errors import Failure, MisuseError
from bridle.values.message import Reply
from bridle.values.request import Request
from bridle.values.usage import Usage, list_service_terms

from .app import (
    SCHEME,
    ReceivedRequest,
    check_request,
    decide_reply,
    families_at_url,
    list_models,
    receive_request,
)
from .compaction import measure_with_compaction
from .delivery import as_timeline, complete_reply, deliver_reply
from .endpoints import (
    CallerContext,
    EndpointCall,
    ServerState,
    add_created_time,
    add_request_id,
    find_route,
    has_doubled_path,
    json_reply,
    not_found_failure,
    parse_query,
)
from .families import find_family, find_prompt_reader, list_profile_names, list_rules
from .request_forms import convert_calls
from .stored_objects import StoredObjects

OK = 200
MAIN_METHOD, PROBE_METHOD = "POST", "HEAD"
"""`HEAD /` only probes whether a server is running."""
JSON_RULE = "json"
"""Id of the rule about malformed JSON, the same in every family."""
SIZE_RULE = "body-size"
"""Id of the rule about oversized bodies, in the families that state a limit."""
TOO_LARGE = Failure(kind="too_large", message="Request Entity Too Large", status=413)
WRONG_METHOD = Failure(kind="invalid", message="Method Not Allowed", status=405)
"""Every main endpoint accepts POST only."""
REFUSALS_MAX = 1_000
"""Limit on recorded refusals, so that a long-running server does not grow."""
ATTEMPTS_MAX = 10_000
"""Limit on conversations whose failure script is unfinished; the oldest are dropped."""


class SimulatorRefusal(Value, kw_only=True):
    """A request that the simulator rejected."""

    family: str
    rule: str
    """Id of the broken rule; empty if the request could not be decoded."""
    message: str
    path: str


class Simulator:
    def __init__(
        self,
        responder: Responder = respond,
        *,
        clock: Clock | None = None,
        seed: int = 0,
        strict: bool = True,
        profile: str = "",
        faults: Iterable[PlannedFault | str] = (),
        log: Callable[[RecordedExchange], None] | None = None,
    ) -> None:
        """Set up a provider with empty caches and no stored objects.

        `strict` refuses what the provider would refuse. `clock` supplies the time for everything that
        expires. `faults` names the faults to inject (`bridle sim faults` lists them). `log` receives every
        exchange.
        """
        if profile and profile not in list_profile_names():
            raise MisuseError(
                f"unknown profile {profile!r}; choose one of: {', '.join(list_profile_names())}"
            )
        self.responder, self.seed, self.strict, self.profile = responder, seed, strict, profile
        self.clock: Clock = clock or SystemClock()
        self.refusals: list[SimulatorRefusal] = []
        self.stored = StoredObjects()
        self.cache, self.prompt_history = SimulatedPromptCache(), PromptHistory()
        self.injected_faults: list[str] = []
        """Names of the faults injected so far, in order."""
        self._fault_plan = FaultPlan(faults, seed)
        self._misuses: list[str] = []
        self._log = log
        self._attempts: dict[bytes, int] = {}
        self._request_counts: Counter[bytes] = Counter()

    async def answer(self, outgoing: OutgoingRequest) -> ResponseTimeline:
        family, timeline = self._answer(outgoing)
        sys.audit("bridle.heard", family, outgoing.body, self.strict)
        if self._log is not None:
            answer = RecordedReply(status=timeline.status, headers=timeline.headers, body=timeline.body)
            self._log(scrub_exchange(outgoing, answer, family))
        return timeline

    def refuse_type(self, outgoing: OutgoingRequest) -> ResponseTimeline:
        """Refuse a body whose content type is not JSON, in the family's own words."""
        received = receive_request(outgoing)
        content_type = received.raw.headers.get("content-type", "")
        failure = find_family(received.codec.family).endpoints.wrong_content_type
        return self._refuse(received, replace(failure, message=failure.message.format(given=content_type)))

    def refuse_size(self, outgoing: OutgoingRequest, size: int) -> ResponseTimeline:
        """Refuse a body that is too large to read; `size` is its length in bytes as far as known."""
        received = receive_request(outgoing)
        limits = [rule for rule in list_rules(received.codec.family) if rule.id == SIZE_RULE]
        violation = find_violation(limits, replace(received.raw, size=size))
        return (
            self._refuse(received, violation.failure, SIZE_RULE)
            if violation
            else self._refuse(received, TOO_LARGE)
        )

    def plan_faults(self, faults: Iterable[PlannedFault | str]) -> None:
        """Inject these faults from now on, instead of those planned before."""
        self._fault_plan = FaultPlan(faults, self.seed)

    def check_finished(self) -> None:
        """Raise `MisuseError` for unanswered requests, an unfinished script or unused faults."""
        unfinished = getattr(self.responder, "unfinished", None)
        left = unfinished() if unfinished is not None else ""
        faults = (
            f"planned faults never happened: {', '.join(self._fault_plan.remaining)}"
            if self._fault_plan.remaining
            else ""
        )
        if problems := [*self._misuses, *filter(None, (left, faults))]:
            raise MisuseError("; ".join(problems))

    def _answer(self, outgoing: OutgoingRequest) -> tuple[str, ResponseTimeline]:
        received = receive_request(outgoing)
        family = received.codec.family
        try:
            return family, add_request_id(
                find_family(family).endpoints, self._handle_request(outgoing, received), outgoing.body
            )
        except MisuseError as error:
            self._misuses.append(str(error))
            failure = Failure(kind="invalid", message=f"simulator: {error}", status=400, should_retry=False)
            return family, as_timeline(received.server.encode_failure(failure))

    def _handle_request(self, outgoing: OutgoingRequest, received: ReceivedRequest) -> ResponseTimeline:
        request = received.request
        if (isinstance(request, Failure) and request.kind == "not_found") or has_doubled_path(outgoing.url):
            return self._handle_extra_endpoint(outgoing, received)
        if outgoing.method != MAIN_METHOD:
            return self._refuse(received, WRONG_METHOD)
        body = received.raw.body
        expand_request = find_family(received.codec.family).endpoints.expand_request
        if expand_request is not None:
            caller = CallerContext(headers=received.raw.headers, path=received.raw.path, now=self.clock.now())
            expanded = expand_request(self.stored, body, caller)
            if isinstance(expanded, Failure):
                return self._refuse(received, expanded)
            if expanded is not body:
                received = receive_request(replace(outgoing, body=msgspec.json.encode(expanded)))
        violation = check_request(received, self.profile) if self.strict else None
        if violation is not None:
            return self._refuse(received, violation.failure, violation.rule.id, violation.param)
        if isinstance(received.request, Failure):
            return self._refuse(received, received.request)
        return self._reply(received, received.request, outgoing, body)

    def _handle_extra_endpoint(
        self, outgoing: OutgoingRequest, received: ReceivedRequest
    ) -> ResponseTimeline:
        """Serve a request to any endpoint other than the main one."""
        families = {name: find_family(name).endpoints for name in families_at_url(outgoing.url)}
        headers = received.raw.headers
        if outgoing.method == PROBE_METHOD and not urlsplit(outgoing.url).path.strip("/"):
            return ResponseTimeline(status=OK, headers=(), steps=())
        doubled = has_doubled_path(outgoing.url)
        found = None if doubled else find_route(families, outgoing.method, outgoing.url, headers)
        if found is None:
            family, failure = not_found_failure(families, outgoing.method, outgoing.url, headers)
            return self._refuse(replace(received, codec=load_codec(family)), failure)
        family, route, path_params = found
        if outgoing.body and received.raw.malformed:
            json_rules = [rule for rule in list_rules(family) if rule.id == JSON_RULE]
            violation = find_violation(json_rules, received.raw)
            assert violation is not None
            return self._refuse(replace(received, codec=load_codec(family)), violation.failure, JSON_RULE)

        def read(path: str, body: dict[str, object], headers: Mapping[str, str]) -> Request | Failure:
            main = OutgoingRequest(
                method=MAIN_METHOD,
                url=f"{SCHEME}://{family}{path}",
                headers=tuple(headers.items()),
                body=msgspec.json.encode(body),
            )
            inner = receive_request(main)
            violation = check_request(inner, self.profile) if self.strict else None
            # Token counting also accepts a prompt that is too long for the model.
            if violation is not None and violation.rule.kind != "context":
                return violation.failure
            counts.append(inner.prompt_usage)
            return inner.request

        def count(request: Request) -> int:
            usage = counts[-1] if counts else None
            return usage.input if usage else count_prompt_tokens(request)

        counts: list[Usage | None] = []
        server_state = ServerState(
            models=list_models(), stored=self.stored, read_request=read, count_tokens=count
        )
        call = EndpointCall(
            path_params=path_params,
            query=parse_query(outgoing.url),
            headers=headers,
            body=dict(received.raw.body),
            now=self.clock.now(),
        )
        outcome = route.handle(server_state, call)
        if isinstance(outcome, Failure):
            return self._refuse(replace(received, codec=load_codec(family)), outcome)
        return as_timeline(outcome if isinstance(outcome, HttpReply) else json_reply(outcome))

    def _refuse(
        self, received: ReceivedRequest, failure: Failure, rule: str = "", param: str = ""
    ) -> ResponseTimeline:
        refusal = SimulatorRefusal(
            family=received.codec.family, rule=rule, message=failure.message, path=received.raw.path
        )
        sys.audit("bridle.refused", refusal, received.raw.body)
        self.refusals.append(refusal)
        del self.refusals[:-REFUSALS_MAX]
        encoded = received.server.encode_failure(failure)
        return as_timeline(find_family(received.codec.family).endpoints.add_rejected_field(encoded, param))

    def _reply(
        self,
        received: ReceivedRequest,
        request: Request,
        outgoing: OutgoingRequest,
        body: Mapping[str, object],
    ) -> ResponseTimeline:
        decided = as_decision(decide_reply(received, request, self.responder))
        if isinstance(decided, Failure):
            return as_timeline(received.server.encode_failure(decided))
        failure = self._next_failure(request, decided.failures)
        if isinstance(failure, Failure):
            return as_timeline(received.server.encode_failure(failure))
        endpoints = find_family(received.codec.family).endpoints
        layout, named_tokens = (
            self._lay_out_prompt(received, request),
            endpoints.named_prompt_tokens(self.stored, body),
        )
        reply = apply_quirks(self.profile or received.profile, received.raw, decided.reply)
        reply = find_family(received.codec.family).complete_reasoning(received.raw, reply)
        decided = replace(decided, reply=convert_calls(received.offers, reply))
        reply, encoded = self._encode_reply(received, request, decided, layout, named_tokens)
        encoded = add_created_time(endpoints, encoded, self.clock.now())
        encoded = endpoints.adapt_reply(
            encoded, body, parse_query(outgoing.url), self.profile or received.profile
        )
        faulted = self._inject_fault(
            FaultTarget(
                codec=received.codec,
                request=request,
                reply=reply,
                encoded=encoded,
                random_source=Random(self.seed),
                now=self.clock.now(),
            )
        )
        if layout is not None and not named_tokens and (faulted is None or faulted.status == OK):
            # A prompt is cached only if the answer starts.
            self.cache.write_entries(layout, self.clock.now())
        delivered = encoded if faulted is None else complete_reply(faulted)
        if endpoints.store_reply is not None and failure is None and delivered is not None:
            endpoints.store_reply(self.stored, body, delivered, self.clock.now())
        if faulted is not None:
            return faulted
        return deliver_reply(encoded, decided, failure)

    def _lay_out_prompt(self, received: ReceivedRequest, request: Request) -> PromptLayout | None:
        reader, model = find_prompt_reader(received.codec.family), request.model
        if received.prompt is None or reader is None:
            return None
        account = f"{received.codec.family} {reader.find_account(received.raw.headers)}"
        return PromptLayout(received.prompt, account, model.abilities, model.id)

    def _encode_reply(
        self,
        received: ReceivedRequest,
        request: Request,
        decision: ResponderDecision,
        layout: PromptLayout | None,
        named_tokens: int,
    ) -> tuple[Reply, HttpReply]:
        """Return the reply with its token counts, and its HTTP form with the cache report.

        A prompt stored under a name is neither looked up in the cache nor added to it.
        """
        usage = self.cache.measure_usage(layout, self.clock.now()) if layout else None
        if layout is not None and named_tokens:
            usage = Usage(input=layout.prompt.tokens - named_tokens, cache_read=named_tokens)
        family = find_family(received.codec.family)
        reply, summary_usage = measure_with_compaction(
            family.compaction, received.raw, request, decision.reply, usage, received.prompt
        )
        if decision.hosted:
            reply = add_hosted_usage(request, reply, decision.hosted)
        if decision.usage is not None:
            reply = replace(reply, usage=decision.usage)
        elif terms := list_service_terms(received.raw.body):
            reply = replace(reply, usage=replace(reply.usage, terms=terms))
        reply = family.sign_reply(received.raw, family.display_reasoning(received.raw, reply))
        encoded = family.encode_reply(reply, stream=request.stream)
        reporter = family.cache_reporter
        if layout is None or usage is None or reporter is None:
            return reply, encoded
        earlier = reporter.find_compared_reply(received.raw.body)
        miss = self.prompt_history.compare_prompt(earlier, layout) if earlier else None
        self.prompt_history.record_prompt(reply.id, layout)
        report = CacheReport(
            usage=usage,
            cache_mode=request.model.abilities.cache,
            difference=miss,
            summary_usage=summary_usage,
        )
        return reply, replace(encoded, frames=add_cache_report(encoded.frames, reporter, report))

    def _inject_fault(self, incident: FaultTarget) -> ResponseTimeline | None:
        if not self._fault_plan:
            return None
        point = _hash_conversation(incident.request)
        self._request_counts[point] += 1
        found = self._fault_plan.inject_next(incident, f"{point.hex()} {self._request_counts[point]}")
        if found is None:
            return None
        self.injected_faults.append(found[0])
        return found[1]

    def _next_failure(
        self, request: Request, failures: tuple[SimulatedFailure, ...]
    ) -> SimulatedFailure | None:
        """Return the failure for this attempt, if any. Failures that a retry cannot fix repeat forever."""
        if not failures:
            return None
        point = _hash_conversation(request)
        attempt = self._attempts.pop(point, 0)
        if attempt >= len(failures):
            return None
        failure = failures[attempt]
        can_retry = not isinstance(failure, Failure) or FAILURE_POLICY[failure.kind].can_repeat
        self._attempts[point] = attempt + 1 if can_retry else attempt
        if len(self._attempts) > ATTEMPTS_MAX:
            del self._attempts[next(iter(self._attempts))]
        return failure


def _hash_conversation(request: Request) -> bytes:
    """Digest that identifies one point of a conversation."""
    return blake2b(msgspec.json.encode((request.model.id, request.messages)), digest_size=16).digest()


@cache
def default_simulator() -> Simulator:
    """The shared simulator that serves `sim:` models in this process."""
    return Simulator()


async def answer(outgoing: OutgoingRequest) -> ResponseTimeline:
    return await default_simulator().answer(outgoing)
