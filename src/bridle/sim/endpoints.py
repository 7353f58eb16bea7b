"""What a provider offers beside its main endpoint: lists of models, counting, conversations it keeps.

Each family has its own file (`side_<family>.py`) with a table of doors; a family without
one has none.  It may also say how a request that leans on something kept is filled in
before it is read, how the answer is dressed for the one who asked, what is kept of it, and how
somebody is told who came to the wrong place.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from itertools import pairwise
from urllib.parse import parse_qsl, urlsplit

import msgspec
from msgspec.structs import replace

from bridle.ports.codec import HttpReply
from bridle.ports.transport import ConnectionCut, ResponseTimeline, SilentPause
from bridle.values.base import Value
from bridle.values.errors import Failure
from bridle.values.model import Model
from bridle.values.request import Request

from .stored_objects import StoredObjects

ERROR_STATUS, NOT_FOUND = 400, 404
VERSION_STEP = re.compile(r"v\d\w*")
UNSIMULATED_MESSAGE = "simulator: {method} {path} is an endpoint of the provider that is not simulated"
EMPTY_REQUEST_ID = b'"request_id":null'
Json = dict[str, object]


class EndpointCall(Value):
    """A request at a side door."""

    path_params: Mapping[str, str]
    """What the door's pattern caught of the path."""
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Json
    now: float


class CallerContext(Value):
    """Who leans on what is kept, and when."""

    headers: Mapping[str, str]
    path: str
    now: float


class ServerState(Value):
    """What is behind the doors."""

    models: tuple[Model, ...]
    """Everybody's."""
    stored: StoredObjects
    read_request: Callable[[str, Json, Mapping[str, str]], Request | Failure]
    """What a body would mean at another path of the same family, rules included."""
    count_tokens: Callable[[Request], int]

    def models_of(self, *families: str) -> tuple[Model, ...]:
        """Each model of these families once, at the first endpoint that serves it."""
        theirs = [model for model in self.models if model.endpoint.family in families]
        first = {model.id: model for model in reversed(theirs)}
        return tuple(first[name] for name in dict.fromkeys(model.id for model in theirs))


class EndpointRoute(Value):
    method: str
    pattern: re.Pattern[str]
    """Of the whole path."""
    handle: Callable[[ServerState, EndpointCall], "Json | Failure | HttpReply"]
    required_header: str = ""
    """Only for those who send this header: some paths belong to several families."""


def _keep_reply(reply: HttpReply, body: Mapping[str, object], query: Mapping[str, str]) -> HttpReply:
    return reply


def _keep_refusal(reply: HttpReply, param: str) -> HttpReply:
    return reply


UNSUPPORTED_TYPE = Failure(
    kind="invalid", message="Unsupported media type {given!r}: use 'application/json'", status=415
)


class ExtraEndpoints(Value):
    """Everything of a family but its main endpoint."""

    routes: tuple[EndpointRoute, ...] = ()
    is_own_request: Callable[[str, Mapping[str, str]], bool] = lambda path, headers: False
    """Whether somebody with this path and these headers meant to come here."""
    not_found_message: str = "Not Found"
    """What is said of an address at which nobody is; `{method}` and `{path}` are known."""
    not_found_code: str = ""
    wrong_content_type: Failure = UNSUPPORTED_TYPE
    """The refusal of a body that is not said to be JSON; `{given}` is the content type."""
    unsimulated_paths: re.Pattern[str] | None = None
    """Paths that the provider serves and the simulator does not."""
    request_id_header: str = ""
    """The header with the id of an exchange."""
    request_id: Callable[[str], str] = lambda digest: f"req_{digest[:24]}"
    reply_id: Callable[[str], str] = lambda digest: f"sim_{digest[:24]}"
    """The ids of an exchange and of a reply, from the digest of what was asked."""
    call_prefix: str = "call_"
    """The beginning of the ids of calls."""
    created_field: bytes = b""
    """The member of a reply that says when it was made, as the codec writes it."""
    add_rejected_field: Callable[[HttpReply, str], HttpReply] = _keep_refusal
    """A refusal with the name of the field at fault, where that is told apart from the words."""
    expand_request: (
        Callable[[StoredObjects, Mapping[str, object], CallerContext], "Mapping[str, object] | Failure"]
        | None
    ) = None
    """The request with everything in it that it leans on; the very same when it leans on nothing."""
    named_prompt_tokens: Callable[[StoredObjects, Mapping[str, object]], int] = lambda keeping, body: 0
    """How much of the prompt of a request is kept under a name it gives."""
    adapt_reply: Callable[[HttpReply, Mapping[str, object], Mapping[str, str]], HttpReply] = _keep_reply
    """The answer as this body and this query want it."""
    store_reply: Callable[[StoredObjects, Mapping[str, object], HttpReply, float], None] | None = None
    """Keeps what has to be kept of an answer, from this moment on."""


def find_route(
    families: Mapping[str, ExtraEndpoints], method: str, url: str, headers: Mapping[str, str]
) -> tuple[str, EndpointRoute, Mapping[str, str]] | None:
    """Whose door this is, the door, and what its pattern caught."""
    path = urlsplit(url).path.rstrip("/")
    for family, endpoints in families.items():
        for door in endpoints.routes:
            found = door.pattern.fullmatch(path) if door.method == method else None
            if found is not None and (not door.required_header or door.required_header in headers):
                caught = {name: value for name, value in found.groupdict().items() if value is not None}
                return family, door, caught
    return None


def not_found_failure(
    families: Mapping[str, ExtraEndpoints], method: str, url: str, headers: Mapping[str, str]
) -> tuple[str, Failure]:
    """Whose words somebody gets at an address where nobody is, and the words."""
    path = urlsplit(url).path
    own = (family for family, each in families.items() if each.is_own_request(path, headers))
    family = next(own, [*families][-1])
    side = families[family]
    message = side.not_found_message.format(method=method, path=path)
    if (
        side.unsimulated_paths is not None
        and side.unsimulated_paths.fullmatch(path)
        and not has_doubled_path(url)
    ):
        message = UNSIMULATED_MESSAGE.format(method=method, path=path)
    return family, Failure(kind="not_found", message=message, status=NOT_FOUND, code=side.not_found_code)


def has_doubled_path(url: str) -> bool:
    """Whether a path repeats itself, as when a base URL and a client both add `/v1`."""
    steps = [step for step in urlsplit(url).path.split("/") if step]
    versions = [bool(VERSION_STEP.fullmatch(step)) for step in steps]
    if any(one and other for one, other in pairwise(versions)):
        return True
    return any(
        steps[at : at + size] == steps[at + size : at + 2 * size]
        for size in range(1, len(steps) // 2 + 1)
        for at in range(len(steps) - 2 * size + 1)
    )


def add_request_id(side: ExtraEndpoints, answer: ResponseTimeline, asked: bytes) -> ResponseTimeline:
    """An answer with the id of its exchange; the same asked, the same id."""
    header = side.request_id_header
    if not header or any(name == header for name, _ in answer.headers):
        return answer
    name = side.request_id(blake2b(asked, digest_size=16).hexdigest())
    if answer.status < ERROR_STATUS:
        return replace(answer, headers=(*answer.headers, (header, name)))
    named = b'"request_id":"%b"' % name.encode()
    beats: tuple[bytes | SilentPause | ConnectionCut, ...] = tuple(
        beat.replace(EMPTY_REQUEST_ID, named) if isinstance(beat, bytes) else beat for beat in answer.steps
    )
    return replace(answer, headers=(*answer.headers, (header, name)), steps=beats)


def add_created_time(side: ExtraEndpoints, reply: HttpReply, now: float) -> HttpReply:
    """The reply with the time when it was made."""
    undated = side.created_field
    if not undated:
        return reply
    made = undated.removesuffix(b"0") + str(int(now)).encode()
    return replace(reply, frames=tuple(frame.replace(undated, made, 1) for frame in reply.frames))


def page_items(
    items: Sequence[Json], query: Mapping[str, str], *, default: int, most: int, after: str = "after"
) -> tuple[list[Json], bool]:
    """The items that were asked for, from behind the one named, and whether there are more."""
    ids = [item.get("id") for item in items]
    start = ids.index(query[after]) + 1 if query.get(after) in ids else 0
    limit = query.get("limit", "")
    size = min(int(limit), most) if limit.isdigit() and int(limit) else default
    return list(items[start : start + size]), start + size < len(items)


def parse_query(url: str) -> Mapping[str, str]:
    return dict(parse_qsl(urlsplit(url).query))


def json_reply(body: Json, status: int = 200) -> HttpReply:
    return HttpReply(
        status=status,
        headers=(("content-type", "application/json"),),
        frames=(msgspec.json.encode(body),),
    )
