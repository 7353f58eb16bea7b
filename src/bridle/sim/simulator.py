"""A simulated provider with a memory: everything about the simulator that has state.

`answer` is the application behind `sim:` models and behind the HTTP server.  A request is
heard by its family, checked against the family's rules, answered by the brain, measured,
and delivered as a timeline.  What is remembered between two requests: what was refused,
which prompts are cached, and which troubles a conversation has already met.

Python's audit events `bridle.heard` and `bridle.refused` tell whoever listens in this process of every
request and of every one that was turned away, whichever simulator it was sent to.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from hashlib import blake2b
from random import Random
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from bridle.core.recovery.failure_policy import FAILURE_POLICY
from bridle.ports.clock import Clock
from bridle.ports.codec import HttpReply
from bridle.ports.transport import ConnectionCut, OutgoingRequest, ResponseTimeline, SilentPause
from bridle.providers import load_codec
from bridle.run.clock import SystemClock
from bridle.sim.cache.cache_report import CacheReport, PromptHistory, add_cache_report
from bridle.sim.cache.prompt_cache import PromptLayout, SimulatedPromptCache
from bridle.sim.cache.token_estimate import count_prompt_tokens
from bridle.sim.faults.actions import FaultTarget
from bridle.sim.faults.catalogue import FaultPlan, PlannedFault
from bridle.sim.responder.decision import (
    CutAfter,
    Responder,
    ResponderDecision,
    SimulatedFailure,
    as_decision,
)
from bridle.sim.responder.rule_based import respond
from bridle.sim.rules.engine import find_violation
from bridle.transports.recorded import RecordedExchange, RecordedReply, scrub_exchange
from bridle.values.base import Value
from bridle.values.errors import Failure, MisuseError
from bridle.values.message import Reply
from bridle.values.request import Request
from bridle.values.usage import Usage

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
from .server_quirks import apply_quirks
from .stored_objects import StoredObjects

OK = 200
MAIN_METHOD, PROBE_METHOD = "POST", "HEAD"
"""`HEAD /` only asks whether somebody is there."""
JSON_RULE = "json"
"""The rule about bodies that are not JSON, in every family."""
SIZE_RULE = "body-size"
"""The rule about bodies that are too large, in the families that tell their limit."""
TOO_LARGE = Failure(kind="too_large", message="Request Entity Too Large", status=413)
WRONG_METHOD = Failure(kind="invalid", message="Method Not Allowed", status=405)
"""Nobody's main endpoint is asked in any other way."""
REFUSALS_MAX = 1_000
"""More than anybody reads; a server that runs for weeks must not grow."""
ATTEMPTS_MAX = 10_000
"""Conversations that were given up in the middle of their troubles; the oldest are forgotten."""


class SimulatorRefusal(Value):
    """A request that was turned away."""

    family: str
    rule: str
    """The id of the rule it broke; empty when it could not even be read."""
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
        """`strict` refuses what the provider would refuse.  `clock` dates whatever has a lifetime.

        `faults` are names of what is to go wrong (`bridle sim faults`); `log` is given every exchange.
        """
        if profile and profile not in list_profile_names():
            raise MisuseError(f"there is no profile {profile!r}; there are {', '.join(list_profile_names())}")
        self.responder, self.seed, self.strict, self.profile = responder, seed, strict, profile
        self.clock: Clock = clock or SystemClock()
        self.refusals: list[SimulatorRefusal] = []
        self.stored = StoredObjects()
        self.cache, self.prompt_history = SimulatedPromptCache(), PromptHistory()
        self.injected_faults: list[str] = []
        """The faults that happened, in order."""
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
        """The refusal of a body that is not said to be JSON, in the words of the family that was asked."""
        heard = receive_request(outgoing)
        given = heard.raw.headers.get("content-type", "")
        failure = find_family(heard.codec.family).endpoints.wrong_content_type
        return self._refuse(heard, replace(failure, message=failure.message.format(given=given)))

    def refuse_size(self, outgoing: OutgoingRequest, size: int) -> ResponseTimeline:
        """The refusal of a body of which `size` bytes are too many to be read."""
        heard = receive_request(outgoing)
        limits = [rule for rule in list_rules(heard.codec.family) if rule.id == SIZE_RULE]
        violation = find_violation(limits, replace(heard.raw, size=size))
        return (
            self._refuse(heard, violation.failure, SIZE_RULE) if violation else self._refuse(heard, TOO_LARGE)
        )

    def plan_faults(self, faults: Iterable[PlannedFault | str]) -> None:
        """Let these go wrong from now on, instead of what was planned before."""
        self._fault_plan = FaultPlan(faults, self.seed)

    def check_finished(self) -> None:
        """Raises `MisuseError` when something was asked that nobody had an answer for, or when a script
        or a planned fault was never reached."""
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
        heard = receive_request(outgoing)
        family = heard.codec.family
        try:
            return family, add_request_id(
                find_family(family).endpoints, self._handle_request(outgoing, heard), outgoing.body
            )
        except MisuseError as error:
            self._misuses.append(str(error))
            failure = Failure(kind="invalid", message=f"simulator: {error}", status=400, should_retry=False)
            return family, _as_timeline(heard.server.encode_failure(failure))

    def _handle_request(self, outgoing: OutgoingRequest, heard: ReceivedRequest) -> ResponseTimeline:
        request = heard.request
        if (isinstance(request, Failure) and request.kind == "not_found") or has_doubled_path(outgoing.url):
            return self._handle_extra_endpoint(outgoing, heard)
        if outgoing.method != MAIN_METHOD:
            return self._refuse(heard, WRONG_METHOD)
        body = heard.raw.body
        unfolded = find_family(heard.codec.family).endpoints.expand_request
        if unfolded is not None:
            caller = CallerContext(headers=heard.raw.headers, path=heard.raw.path, now=self.clock.now())
            whole = unfolded(self.stored, body, caller)
            if isinstance(whole, Failure):
                return self._refuse(heard, whole)
            if whole is not body:
                heard = receive_request(replace(outgoing, body=msgspec.json.encode(whole)))
        violation = check_request(heard, self.profile) if self.strict else None
        if violation is not None:
            return self._refuse(heard, violation.failure, violation.rule.id, violation.param)
        if isinstance(heard.request, Failure):
            return self._refuse(heard, heard.request)
        return self._reply(heard, heard.request, outgoing, body)

    def _handle_extra_endpoint(self, outgoing: OutgoingRequest, heard: ReceivedRequest) -> ResponseTimeline:
        """What is asked of the provider beside the main thing."""
        families = {name: find_family(name).endpoints for name in families_at_url(outgoing.url)}
        headers = heard.raw.headers
        if outgoing.method == PROBE_METHOD and not urlsplit(outgoing.url).path.strip("/"):
            return ResponseTimeline(status=OK, headers=(), steps=())
        doubled = has_doubled_path(outgoing.url)
        found = None if doubled else find_route(families, outgoing.method, outgoing.url, headers)
        if found is None:
            family, failure = not_found_failure(families, outgoing.method, outgoing.url, headers)
            return self._refuse(replace(heard, codec=load_codec(family)), failure)
        family, door, caught = found
        if outgoing.body and heard.raw.malformed:
            unread = [rule for rule in list_rules(family) if rule.id == JSON_RULE]
            violation = find_violation(unread, heard.raw)
            assert violation is not None
            return self._refuse(replace(heard, codec=load_codec(family)), violation.failure, JSON_RULE)

        def read(path: str, body: dict[str, object], headers: Mapping[str, str]) -> Request | Failure:
            main = OutgoingRequest(
                method=MAIN_METHOD,
                url=f"{SCHEME}://{family}{path}",
                headers=tuple(headers.items()),
                body=msgspec.json.encode(body),
            )
            inner = receive_request(main)
            violation = check_request(inner, self.profile) if self.strict else None
            # Whoever counts wants to know by how much it is too long.
            if violation is not None and violation.rule.kind != "context":
                return violation.failure
            counts.append(inner.prompt_usage)
            return inner.request

        def count(request: Request) -> int:
            usage = counts[-1] if counts else None
            return usage.input if usage else count_prompt_tokens(request)

        counts: list[Usage | None] = []
        house = ServerState(models=list_models(), stored=self.stored, read_request=read, count_tokens=count)
        knock = EndpointCall(
            path_params=caught,
            query=parse_query(outgoing.url),
            headers=headers,
            body=dict(heard.raw.body),
            now=self.clock.now(),
        )
        opened = door.handle(house, knock)
        if isinstance(opened, Failure):
            return self._refuse(replace(heard, codec=load_codec(family)), opened)
        return _as_timeline(opened if isinstance(opened, HttpReply) else json_reply(opened))

    def _refuse(
        self, heard: ReceivedRequest, failure: Failure, rule: str = "", param: str = ""
    ) -> ResponseTimeline:
        refusal = SimulatorRefusal(
            family=heard.codec.family, rule=rule, message=failure.message, path=heard.raw.path
        )
        sys.audit("bridle.refused", refusal, heard.raw.body)
        self.refusals.append(refusal)
        del self.refusals[:-REFUSALS_MAX]
        spoken = heard.server.encode_failure(failure)
        return _as_timeline(find_family(heard.codec.family).endpoints.add_rejected_field(spoken, param))

    def _reply(
        self, heard: ReceivedRequest, request: Request, outgoing: OutgoingRequest, body: Mapping[str, object]
    ) -> ResponseTimeline:
        decided = as_decision(decide_reply(heard, request, self.responder))
        if isinstance(decided, Failure):
            return _as_timeline(heard.server.encode_failure(decided))
        trouble = self._next_failure(request, decided.failures)
        if isinstance(trouble, Failure):
            return _as_timeline(heard.server.encode_failure(trouble))
        side = find_family(heard.codec.family).endpoints
        layout, named = self._lay_out_prompt(heard, request), side.named_prompt_tokens(self.stored, body)
        said = apply_quirks(self.profile or heard.profile, heard.raw, decided.reply)
        said = find_family(heard.codec.family).complete_reasoning(heard.raw, said)
        decided = replace(decided, reply=convert_calls(heard.offers, said))
        reply, spoken = self._encode_reply(heard, request, decided, layout, named)
        spoken = add_created_time(side, spoken, self.clock.now())
        spoken = side.adapt_reply(spoken, body, parse_query(outgoing.url))
        struck = self._inject_fault(
            FaultTarget(
                codec=heard.codec,
                request=request,
                reply=reply,
                encoded=spoken,
                random_source=Random(self.seed),
                now=self.clock.now(),
            )
        )
        if layout is not None and not named and (struck is None or struck.status == OK):
            # Only an answer that begins has its prompt cached.
            self.cache.write_entries(layout, self.clock.now())
        told = spoken if struck is None else complete_reply(struck)
        if side.store_reply is not None and trouble is None and told is not None:
            side.store_reply(self.stored, body, told, self.clock.now())
        if struck is not None:
            return struck
        return deliver_reply(spoken, decided, trouble)

    def _lay_out_prompt(self, heard: ReceivedRequest, request: Request) -> PromptLayout | None:
        reader, model = find_prompt_reader(heard.codec.family), request.model
        if heard.prompt is None or reader is None:
            return None
        account = f"{heard.codec.family} {reader.find_account(heard.raw.headers)}"
        return PromptLayout(heard.prompt, account, model.abilities, model.id)

    def _encode_reply(
        self,
        heard: ReceivedRequest,
        request: Request,
        turn: ResponderDecision,
        layout: PromptLayout | None,
        named: int,
    ) -> tuple[Reply, HttpReply]:
        """The reply as it is measured, and on the wire with what is told of the cache.

        What is behind a named prompt is neither looked up nor kept: nobody says that it is.
        """
        usage = self.cache.measure_usage(layout, self.clock.now()) if layout else None
        if layout is not None and named:
            usage = Usage(input=layout.prompt.tokens - named, cache_read=named)
        family = find_family(heard.codec.family)
        reply, made = measure_with_compaction(
            family.compaction, heard.raw, request, turn.reply, usage, heard.prompt
        )
        if turn.usage is not None:
            reply = replace(reply, usage=turn.usage)
        reply = family.sign_reply(heard.raw, family.display_reasoning(heard.raw, reply))
        spoken = family.encode_reply(reply, stream=request.stream)
        teller = family.cache_reporter
        if layout is None or usage is None or teller is None:
            return reply, spoken
        earlier = teller.find_compared_reply(heard.raw.body)
        miss = self.prompt_history.compare_prompt(earlier, layout) if earlier else None
        self.prompt_history.record_prompt(reply.id, layout)
        told = CacheReport(
            usage=usage, cache_mode=request.model.abilities.cache, difference=miss, summary_usage=made
        )
        return reply, replace(spoken, frames=add_cache_report(spoken.frames, teller, told))

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
        self, request: Request, troubles: tuple[SimulatedFailure, ...]
    ) -> SimulatedFailure | None:
        """What this attempt meets.  What no second attempt can mend is met every time."""
        if not troubles:
            return None
        point = _hash_conversation(request)
        attempt = self._attempts.pop(point, 0)
        if attempt >= len(troubles):
            return None
        trouble = troubles[attempt]
        mendable = not isinstance(trouble, Failure) or FAILURE_POLICY[trouble.kind].can_repeat
        self._attempts[point] = attempt + 1 if mendable else attempt
        if len(self._attempts) > ATTEMPTS_MAX:
            del self._attempts[next(iter(self._attempts))]
        return trouble


def deliver_reply(
    reply: HttpReply, turn: ResponderDecision, trouble: CutAfter | None = None
) -> ResponseTimeline:
    paced = tuple(_pace_frames(reply.frames, turn))
    beats = paced if trouble is None else tuple(_cut_after(paced, trouble.bytes))
    return ResponseTimeline(
        status=reply.status, headers=reply.headers, steps=beats, delay_seconds=turn.silence_seconds
    )


def complete_reply(answer: ResponseTimeline) -> HttpReply | None:
    """The reply that a disturbed answer still brings to its end; None when it does not."""
    if answer.status != OK or any(isinstance(beat, ConnectionCut) for beat in answer.steps):
        return None
    data = b"".join(beat for beat in answer.steps if isinstance(beat, bytes)).replace(b"\r\n", b"\n")
    if b"\n\n" not in data:
        frames: tuple[bytes, ...] = (data,)
    else:
        events = (event for event in data.split(b"\n\n") if event and not event.startswith(b":"))
        frames = tuple(event + b"\n\n" for event in events)
    last = frames[-1].rpartition(b"data: ")[2] if frames else b""
    try:
        msgspec.json.decode(last)
    except msgspec.DecodeError:
        return None  # it breaks off, or it is not text
    return HttpReply(status=answer.status, headers=answer.headers, frames=frames)


def _as_timeline(reply: HttpReply) -> ResponseTimeline:
    return ResponseTimeline(status=reply.status, headers=reply.headers, steps=reply.frames)


def _pace_frames(
    frames: tuple[bytes, ...], turn: ResponderDecision
) -> Iterator[bytes | SilentPause | ConnectionCut]:
    middle = len(frames) // 2
    for number, frame in enumerate(frames):
        if number and turn.pace_seconds:
            yield SilentPause(seconds=turn.pace_seconds)
        if number == middle and turn.stall_seconds:
            yield SilentPause(seconds=turn.stall_seconds)
        yield frame


def _cut_after(
    beats: tuple[bytes | SilentPause | ConnectionCut, ...], left: int
) -> Iterator[bytes | SilentPause | ConnectionCut]:
    for beat in beats:
        if isinstance(beat, bytes):
            if len(beat) >= left:
                if left:
                    yield beat[:left]
                break
            left -= len(beat)
        yield beat
    yield ConnectionCut()


def _hash_conversation(request: Request) -> bytes:
    """What tells this point of a conversation from every other."""
    return blake2b(msgspec.json.encode((request.model.id, request.messages)), digest_size=16).digest()


@cache
def default_simulator() -> Simulator:
    """The one behind `sim:` in this process, made when somebody first asks it."""
    return Simulator()


async def answer(outgoing: OutgoingRequest) -> ResponseTimeline:
    return await default_simulator().answer(outgoing)
