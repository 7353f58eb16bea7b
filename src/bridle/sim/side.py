"""What a provider offers beside its main endpoint: lists of models, counting, conversations it keeps.

Each family has its own file (`side_<family>.py`) with a table of doors; a family without
one has none.  It may also say how a request that leans on something kept is filled in
before it is read, how the answer is dressed for the one who asked, what is kept of it, and how
somebody is told who came to the wrong place.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from hashlib import blake2b
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from urllib.parse import parse_qsl, urlsplit

import msgspec
from msgspec.structs import replace

from ..ports.codec import HttpReply
from ..ports.transport import Cut, Pause, Timeline
from ..values.errors import Failure
from ..values.model import Model
from ..values.request import Request
from ..values.value import Value
from .keeping import Keeping

PREFIX = "side_"
BAD, NOT_FOUND = 400, 404
VERSION = re.compile(r"v\d\w*")
UNSIMULATED = "simulator: {method} {path} is an endpoint of the provider that is not simulated"
UNNAMED = b'"request_id":null'
Json = dict[str, object]


class Knock(Value):
    """A request at a side door."""

    found: Mapping[str, str]
    """What the door's pattern caught of the path."""
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Json
    now: float


class Caller(Value):
    """Who leans on what is kept, and when."""

    headers: Mapping[str, str]
    path: str
    now: float


class House(Value):
    """What is behind the doors."""

    models: tuple[Model, ...]
    """Everybody's."""
    keeping: Keeping
    read: Callable[[str, Json, Mapping[str, str]], Request | Failure]
    """What a body would mean at another path of the same family, rules included."""
    count: Callable[[Request], int]

    def models_of(self, *families: str) -> tuple[Model, ...]:
        """Each model of these families once, at the first endpoint that serves it."""
        theirs = [model for model in self.models if model.endpoint.family in families]
        first = {model.id: model for model in reversed(theirs)}
        return tuple(first[name] for name in dict.fromkeys(model.id for model in theirs))


class Door(Value):
    method: str
    pattern: re.Pattern[str]
    """Of the whole path."""
    open: Callable[[House, Knock], "Json | Failure | HttpReply"]
    header: str = ""
    """Only for those who send this header: some paths belong to several families."""


def _as_it_is(reply: HttpReply, body: Mapping[str, object], query: Mapping[str, str]) -> HttpReply:
    return reply


def _unblamed(reply: HttpReply, param: str) -> HttpReply:
    return reply


UNSUPPORTED_TYPE = Failure(
    kind="invalid", message="Unsupported media type {given!r}: use 'application/json'", status=415
)


class Side(Value):
    """Everything of a family but its main endpoint."""

    doors: tuple[Door, ...] = ()
    home: Callable[[str, Mapping[str, str]], bool] = lambda path, headers: False
    """Whether somebody with this path and these headers meant to come here."""
    lost: str = "Not Found"
    """What is said of an address at which nobody is; `{method}` and `{path}` are known."""
    lost_code: str = ""
    wrong_type: Failure = UNSUPPORTED_TYPE
    """The refusal of a body that is not said to be JSON; `{given}` is the content type."""
    unsimulated: re.Pattern[str] | None = None
    """Paths that the provider serves and the simulator does not."""
    stamp: str = ""
    """The header with the id of an exchange."""
    request_id: Callable[[str], str] = lambda digest: f"req_{digest[:24]}"
    reply_id: Callable[[str], str] = lambda digest: f"sim_{digest[:24]}"
    """The ids of an exchange and of a reply, from the digest of what was asked."""
    call_prefix: str = "call_"
    """The beginning of the ids of calls."""
    undated: bytes = b""
    """The member of a reply that says when it was made, as the codec writes it."""
    blamed: Callable[[HttpReply, str], HttpReply] = _unblamed
    """A refusal with the name of the field at fault, where that is told apart from the words."""
    unfolded: Callable[[Keeping, Mapping[str, object], Caller], "Mapping[str, object] | Failure"] | None = (
        None
    )
    """The request with everything in it that it leans on; the very same when it leans on nothing."""
    named_tokens: Callable[[Keeping, Mapping[str, object]], int] = lambda keeping, body: 0
    """How much of the prompt of a request is kept under a name it gives."""
    dressed: Callable[[HttpReply, Mapping[str, object], Mapping[str, str]], HttpReply] = _as_it_is
    """The answer as this body and this query want it."""
    kept: Callable[[Keeping, Mapping[str, object], HttpReply, float], None] | None = None
    """Keeps what has to be kept of an answer, from this moment on."""


@cache
def side_of(family: str) -> Side:
    name = f"{__package__}.{PREFIX}{family}"
    if find_spec(name) is None:
        return Side()
    side: Side = import_module(name).SIDE
    return side


def find_door(
    families: tuple[str, ...], method: str, url: str, headers: Mapping[str, str]
) -> tuple[str, Door, Mapping[str, str]] | None:
    """Whose door this is, the door, and what its pattern caught."""
    path = urlsplit(url).path.rstrip("/")
    for family in families:
        for door in side_of(family).doors:
            found = door.pattern.fullmatch(path) if door.method == method else None
            if found is not None and (not door.header or door.header in headers):
                caught = {name: value for name, value in found.groupdict().items() if value is not None}
                return family, door, caught
    return None


def lost(families: tuple[str, ...], method: str, url: str, headers: Mapping[str, str]) -> tuple[str, Failure]:
    """Whose words somebody gets at an address where nobody is, and the words."""
    path = urlsplit(url).path
    at_home = (family for family in families if side_of(family).home(path, headers))
    family = next(at_home, families[-1])
    side = side_of(family)
    message = side.lost.format(method=method, path=path)
    if side.unsimulated is not None and side.unsimulated.fullmatch(path) and not is_doubled(url):
        message = UNSIMULATED.format(method=method, path=path)
    return family, Failure(kind="not_found", message=message, status=NOT_FOUND, code=side.lost_code)


def is_doubled(url: str) -> bool:
    """Whether a path repeats itself, as when a base URL and a client both add `/v1`."""
    steps = [step for step in urlsplit(url).path.split("/") if step]
    versions = [bool(VERSION.fullmatch(step)) for step in steps]
    if any(one and other for one, other in pairwise(versions)):
        return True
    return any(
        steps[at : at + size] == steps[at + size : at + 2 * size]
        for size in range(1, len(steps) // 2 + 1)
        for at in range(len(steps) - 2 * size + 1)
    )


def stamped(family: str, answer: Timeline, asked: bytes) -> Timeline:
    """An answer with the id of its exchange; the same asked, the same id."""
    side = side_of(family)
    header = side.stamp
    if not header or any(name == header for name, _ in answer.headers):
        return answer
    name = side.request_id(blake2b(asked, digest_size=16).hexdigest())
    if answer.status < BAD:
        return replace(answer, headers=(*answer.headers, (header, name)))
    named = b'"request_id":"%b"' % name.encode()
    beats: tuple[bytes | Pause | Cut, ...] = tuple(
        beat.replace(UNNAMED, named) if isinstance(beat, bytes) else beat for beat in answer.beats
    )
    return replace(answer, headers=(*answer.headers, (header, name)), beats=beats)


def dated(family: str, reply: HttpReply, now: float) -> HttpReply:
    """The reply with the time when it was made."""
    undated = side_of(family).undated
    if not undated:
        return reply
    made = undated.removesuffix(b"0") + str(int(now)).encode()
    return replace(reply, frames=tuple(frame.replace(undated, made, 1) for frame in reply.frames))


def page(
    items: Sequence[Json], query: Mapping[str, str], *, default: int, most: int, after: str = "after"
) -> tuple[list[Json], bool]:
    """The items that were asked for, from behind the one named, and whether there are more."""
    ids = [item.get("id") for item in items]
    start = ids.index(query[after]) + 1 if query.get(after) in ids else 0
    limit = query.get("limit", "")
    size = min(int(limit), most) if limit.isdigit() and int(limit) else default
    return list(items[start : start + size]), start + size < len(items)


def query_of(url: str) -> Mapping[str, str]:
    return dict(parse_qsl(urlsplit(url).query))


def plain(body: Json, status: int = 200) -> HttpReply:
    return HttpReply(
        status=status,
        headers=(("content-type", "application/json"),),
        frames=(msgspec.json.encode(body),),
    )
