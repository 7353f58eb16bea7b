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

from ..core.verdicts import FAILURES
from ..ports.clock import Clock
from ..ports.codec import HttpReply
from ..ports.transport import Cut, Outgoing, Pause, Timeline
from ..providers import load
from ..run.clock import SystemClock
from ..transports.recorded import Recording
from ..transports.recording import Exchanged, scrubbed
from ..values.errors import Failure, MisuseError
from ..values.message import Reply
from ..values.request import Request
from ..values.usage import Usage
from ..values.value import Value
from .app import SCHEME, Heard, answer_to, families_at, hear, models, objection
from .brain import perform
from .cache import Cache, Layout
from .client_tools import form_calls
from .faults import Plan, Planned
from .incidents import Incident
from .keeping import Keeping
from .manners import in_the_manner_of
from .prompt import reader_of
from .reasoning import complete_reasoning, display_reasoning
from .rules import check, profile_names, rules_of
from .seals import sealed
from .side import Caller, House, Knock, dated, find_door, is_doubled, lost, plain, query_of, side_of, stamped
from .summary import weighed
from .telling import Diary, Told, retold, teller_of
from .tokens import prompt_tokens
from .turn import Brain, CutAfter, Trouble, Turn, turn_of

OK = 200
METHOD, PROBE = "POST", "HEAD"
"""`HEAD /` only asks whether somebody is there."""
UNREAD = "json"
"""The rule about bodies that are not JSON, in every family."""
SIZE = "body-size"
"""The rule about bodies that are too large, in the families that tell their limit."""
TOO_LARGE = Failure(kind="too_large", message="Request Entity Too Large", status=413)
WRONG_METHOD = Failure(kind="invalid", message="Method Not Allowed", status=405)
"""Nobody's main endpoint is asked in any other way."""
REFUSALS_MAX = 1_000
"""More than anybody reads; a server that runs for weeks must not grow."""
ATTEMPTS_MAX = 10_000
"""Conversations that were given up in the middle of their troubles; the oldest are forgotten."""


class Refusal(Value):
    """A request that was turned away."""

    family: str
    rule: str
    """The id of the rule it broke; empty when it could not even be read."""
    message: str
    path: str


class Simulator:
    def __init__(
        self,
        brain: Brain = perform,
        *,
        clock: Clock | None = None,
        seed: int = 0,
        strict: bool = True,
        profile: str = "",
        faults: Iterable[Planned | str] = (),
        log: Callable[[Exchanged], None] | None = None,
    ) -> None:
        """`strict` refuses what the provider would refuse.  `clock` dates whatever has a lifetime.

        `faults` are names of what is to go wrong (`bridle sim faults`); `log` is given every exchange.
        """
        if profile and profile not in profile_names():
            raise MisuseError(f"there is no profile {profile!r}; there are {', '.join(profile_names())}")
        self.brain, self.seed, self.strict, self.profile = brain, seed, strict, profile
        self.clock: Clock = clock or SystemClock()
        self.refusals: list[Refusal] = []
        self.keeping = Keeping()
        self.cache, self.diary = Cache(), Diary()
        self.struck: list[str] = []
        """The faults that happened, in order."""
        self._plan = Plan(faults, seed)
        self._mishaps: list[str] = []
        self._log = log
        self._attempts: dict[bytes, int] = {}
        self._asked: Counter[bytes] = Counter()

    async def answer(self, outgoing: Outgoing) -> Timeline:
        family, timeline = self._answer(outgoing)
        sys.audit("bridle.heard", family, outgoing.body, self.strict)
        if self._log is not None:
            answer = Recording(status=timeline.status, headers=timeline.headers, body=timeline.body)
            self._log(scrubbed(outgoing, answer, family))
        return timeline

    def refuse_type(self, outgoing: Outgoing) -> Timeline:
        """The refusal of a body that is not said to be JSON, in the words of the family that was asked."""
        heard = hear(outgoing)
        given = heard.asked.headers.get("content-type", "")
        failure = side_of(heard.codec.family).wrong_type
        return self._refuse(heard, replace(failure, message=failure.message.format(given=given)))

    def refuse_size(self, outgoing: Outgoing, size: int) -> Timeline:
        """The refusal of a body of which `size` bytes are too many to be read."""
        heard = hear(outgoing)
        limits = [rule for rule in rules_of(heard.codec.family) if rule.id == SIZE]
        violation = check(limits, replace(heard.asked, size=size))
        return self._refuse(heard, violation.failure, SIZE) if violation else self._refuse(heard, TOO_LARGE)

    def plan(self, faults: Iterable[Planned | str]) -> None:
        """Let these go wrong from now on, instead of what was planned before."""
        self._plan = Plan(faults, self.seed)

    def finish(self) -> None:
        """Raises `MisuseError` when something was asked that nobody had an answer for, or when a script
        or a planned fault was never reached."""
        unfinished = getattr(self.brain, "unfinished", None)
        left = unfinished() if unfinished is not None else ""
        faults = f"planned faults never happened: {', '.join(self._plan.left)}" if self._plan.left else ""
        if problems := [*self._mishaps, *filter(None, (left, faults))]:
            raise MisuseError("; ".join(problems))

    def _answer(self, outgoing: Outgoing) -> tuple[str, Timeline]:
        heard = hear(outgoing)
        family = heard.codec.family
        try:
            return family, stamped(family, self._attend(outgoing, heard), outgoing.body)
        except MisuseError as error:
            self._mishaps.append(str(error))
            failure = Failure(kind="invalid", message=f"simulator: {error}", status=400, should_retry=False)
            return family, _whole(heard.codec.speak_failure(failure))

    def _attend(self, outgoing: Outgoing, heard: Heard) -> Timeline:
        request = heard.request
        if (isinstance(request, Failure) and request.kind == "not_found") or is_doubled(outgoing.url):
            return self._aside(outgoing, heard)
        if outgoing.method != METHOD:
            return self._refuse(heard, WRONG_METHOD)
        body = heard.asked.body
        unfolded = side_of(heard.codec.family).unfolded
        if unfolded is not None:
            caller = Caller(headers=heard.asked.headers, path=heard.asked.path, now=self.clock.now())
            whole = unfolded(self.keeping, body, caller)
            if isinstance(whole, Failure):
                return self._refuse(heard, whole)
            if whole is not body:
                heard = hear(replace(outgoing, body=msgspec.json.encode(whole)))
        violation = objection(heard, self.profile) if self.strict else None
        if violation is not None:
            return self._refuse(heard, violation.failure, violation.rule.id, violation.param)
        if isinstance(heard.request, Failure):
            return self._refuse(heard, heard.request)
        return self._reply(heard, heard.request, outgoing, body)

    def _aside(self, outgoing: Outgoing, heard: Heard) -> Timeline:
        """What is asked of the provider beside the main thing."""
        families, headers = families_at(outgoing.url), heard.asked.headers
        if outgoing.method == PROBE and not urlsplit(outgoing.url).path.strip("/"):
            return Timeline(status=OK, headers=(), beats=())
        doubled = is_doubled(outgoing.url)
        found = None if doubled else find_door(families, outgoing.method, outgoing.url, headers)
        if found is None:
            family, failure = lost(families, outgoing.method, outgoing.url, headers)
            return self._refuse(replace(heard, codec=load(family)), failure)
        family, door, caught = found
        if outgoing.body and heard.asked.malformed:
            unread = [rule for rule in rules_of(family) if rule.id == UNREAD]
            violation = check(unread, heard.asked)
            assert violation is not None
            return self._refuse(replace(heard, codec=load(family)), violation.failure, UNREAD)

        def read(path: str, body: dict[str, object], headers: Mapping[str, str]) -> Request | Failure:
            main = Outgoing(
                method=METHOD,
                url=f"{SCHEME}://{family}{path}",
                headers=tuple(headers.items()),
                body=msgspec.json.encode(body),
            )
            inner = hear(main)
            violation = objection(inner, self.profile) if self.strict else None
            # Whoever counts wants to know by how much it is too long.
            if violation is not None and violation.rule.kind != "context":
                return violation.failure
            counts.append(inner.counted)
            return inner.request

        def count(request: Request) -> int:
            usage = counts[-1] if counts else None
            return usage.input if usage else prompt_tokens(request)

        counts: list[Usage | None] = []
        house = House(models=models(), keeping=self.keeping, read=read, count=count)
        knock = Knock(
            found=caught,
            query=query_of(outgoing.url),
            headers=headers,
            body=dict(heard.asked.body),
            now=self.clock.now(),
        )
        opened = door.open(house, knock)
        if isinstance(opened, Failure):
            return self._refuse(replace(heard, codec=load(family)), opened)
        return _whole(opened if isinstance(opened, HttpReply) else plain(opened))

    def _refuse(self, heard: Heard, failure: Failure, rule: str = "", param: str = "") -> Timeline:
        refusal = Refusal(
            family=heard.codec.family, rule=rule, message=failure.message, path=heard.asked.path
        )
        sys.audit("bridle.refused", refusal, heard.asked.body)
        self.refusals.append(refusal)
        del self.refusals[:-REFUSALS_MAX]
        spoken = heard.codec.speak_failure(failure)
        return _whole(side_of(heard.codec.family).blamed(spoken, param))

    def _reply(
        self, heard: Heard, request: Request, outgoing: Outgoing, body: Mapping[str, object]
    ) -> Timeline:
        decided = turn_of(answer_to(heard, request, self.brain))
        if isinstance(decided, Failure):
            return _whole(heard.codec.speak_failure(decided))
        trouble = self._trouble(request, decided.troubles)
        if isinstance(trouble, Failure):
            return _whole(heard.codec.speak_failure(trouble))
        side = side_of(heard.codec.family)
        layout, named = self._laid_out(heard, request), side.named_tokens(self.keeping, body)
        said = in_the_manner_of(self.profile or heard.manners, heard.asked, decided.reply)
        said = complete_reasoning(heard.codec.family, heard.asked, said)
        decided = replace(decided, reply=form_calls(heard.offers, said))
        reply, spoken = self._spoken(heard, request, decided, layout, named)
        spoken = dated(heard.codec.family, spoken, self.clock.now())
        spoken = side.dressed(spoken, body, query_of(outgoing.url))
        struck = self._strike(
            Incident(
                codec=heard.codec,
                request=request,
                reply=reply,
                spoken=spoken,
                chance=Random(self.seed),
                now=self.clock.now(),
            )
        )
        if layout is not None and not named and (struck is None or struck.status == OK):
            # Only an answer that begins has its prompt cached.
            self.cache.keep(layout, self.clock.now())
        told = spoken if struck is None else whole_reply(struck)
        if side.kept is not None and trouble is None and told is not None:
            side.kept(self.keeping, body, told, self.clock.now())
        if struck is not None:
            return struck
        return delivered(spoken, decided, trouble)

    def _laid_out(self, heard: Heard, request: Request) -> Layout | None:
        reader, model = reader_of(heard.codec.family), request.model
        if heard.prompt is None or reader is None:
            return None
        account = f"{heard.codec.family} {reader.account(heard.asked.headers)}"
        return Layout(heard.prompt, account, model.abilities, model.id)

    def _spoken(
        self, heard: Heard, request: Request, turn: Turn, layout: Layout | None, named: int
    ) -> tuple[Reply, HttpReply]:
        """The reply as it is measured, and on the wire with what is told of the cache.

        What is behind a named prompt is neither looked up nor kept: nobody says that it is.
        """
        usage = self.cache.weighed(layout, self.clock.now()) if layout else None
        if layout is not None and named:
            usage = Usage(input=layout.prompt.tokens - named, cache_read=named)
        family = heard.codec.family
        reply, made = weighed(family, heard.asked, request, turn.reply, usage, heard.prompt)
        if turn.usage is not None:
            reply = replace(reply, usage=turn.usage)
        reply = sealed(family, heard.asked, display_reasoning(family, heard.asked, reply))
        spoken = heard.codec.speak(reply, stream=request.stream)
        teller = teller_of(heard.codec.family)
        if layout is None or usage is None or teller is None:
            return reply, spoken
        earlier = teller.compared(heard.asked.body)
        miss = self.diary.compare(earlier, layout) if earlier else None
        self.diary.write(reply.id, layout)
        told = Told(usage=usage, way=request.model.abilities.cache, miss=miss, summary=made)
        return reply, replace(spoken, frames=retold(spoken.frames, teller, told))

    def _strike(self, incident: Incident) -> Timeline | None:
        if not self._plan:
            return None
        point = _point(incident.request)
        self._asked[point] += 1
        found = self._plan.strike(incident, f"{point.hex()} {self._asked[point]}")
        if found is None:
            return None
        self.struck.append(found[0])
        return found[1]

    def _trouble(self, request: Request, troubles: tuple[Trouble, ...]) -> Trouble | None:
        """What this attempt meets.  What no second attempt can mend is met every time."""
        if not troubles:
            return None
        point = _point(request)
        attempt = self._attempts.pop(point, 0)
        if attempt >= len(troubles):
            return None
        trouble = troubles[attempt]
        mendable = not isinstance(trouble, Failure) or FAILURES[trouble.kind].again
        self._attempts[point] = attempt + 1 if mendable else attempt
        if len(self._attempts) > ATTEMPTS_MAX:
            del self._attempts[next(iter(self._attempts))]
        return trouble


def delivered(reply: HttpReply, turn: Turn, trouble: CutAfter | None = None) -> Timeline:
    paced = tuple(_paced(reply.frames, turn))
    beats = paced if trouble is None else tuple(_cut(paced, trouble.bytes))
    return Timeline(
        status=reply.status, headers=reply.headers, beats=beats, delay_seconds=turn.silence_seconds
    )


def whole_reply(answer: Timeline) -> HttpReply | None:
    """The reply that a disturbed answer still brings to its end; None when it does not."""
    if answer.status != OK or any(isinstance(beat, Cut) for beat in answer.beats):
        return None
    data = b"".join(beat for beat in answer.beats if isinstance(beat, bytes)).replace(b"\r\n", b"\n")
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


def _whole(reply: HttpReply) -> Timeline:
    return Timeline(status=reply.status, headers=reply.headers, beats=reply.frames)


def _paced(frames: tuple[bytes, ...], turn: Turn) -> Iterator[bytes | Pause | Cut]:
    middle = len(frames) // 2
    for number, frame in enumerate(frames):
        if number and turn.pace_seconds:
            yield Pause(seconds=turn.pace_seconds)
        if number == middle and turn.stall_seconds:
            yield Pause(seconds=turn.stall_seconds)
        yield frame


def _cut(beats: tuple[bytes | Pause | Cut, ...], left: int) -> Iterator[bytes | Pause | Cut]:
    for beat in beats:
        if isinstance(beat, bytes):
            if len(beat) >= left:
                if left:
                    yield beat[:left]
                break
            left -= len(beat)
        yield beat
    yield Cut()


def _point(request: Request) -> bytes:
    """What tells this point of a conversation from every other."""
    return blake2b(msgspec.json.encode((request.model.id, request.messages)), digest_size=16).digest()


@cache
def default() -> Simulator:
    """The one behind `sim:` in this process, made when somebody first asks it."""
    return Simulator()


async def answer(outgoing: Outgoing) -> Timeline:
    return await default().answer(outgoing)
