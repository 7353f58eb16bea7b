"""Endpoints that a provider serves beside the main one: models, token counting, stored conversations.

Each family defines its `ExtraEndpoints` in `<family>/endpoints.py`. Besides routes, it defines how a request
that refers to stored objects is expanded before it is decoded, how an answer is adapted to the request, what
is stored of it, and how an unknown URL is reported.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import NamedTuple
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


class EndpointCall(Value, kw_only=True, gc=True):
    """A request to an extra endpoint."""

    path_params: Mapping[str, str]
    """Named groups that the route's pattern matched in the path."""
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Json
    now: float


class CallerContext(Value, kw_only=True):
    """Details of a request that `expand_request` needs: headers, path and time."""

    headers: Mapping[str, str]
    path: str
    now: float


class ServerState(Value, kw_only=True, gc=True):
    """The simulator's state and functions that an endpoint handler may use."""

    models: tuple[Model, ...]
    """The models of all families."""
    stored: StoredObjects
    read_request: Callable[[str, Json, Mapping[str, str]], Request | Failure]
    """Decodes and checks a body as if it were sent to another path of the same family."""
    count_tokens: Callable[[Request], int]

    def models_of(self, *families: str) -> tuple[Model, ...]:
        """List each model of these families once, at the first endpoint that serves it."""
        theirs = [model for model in self.models if model.endpoint.family in families]
        first = {model.id: model for model in reversed(theirs)}
        return tuple(first[name] for name in dict.fromkeys(model.id for model in theirs))


class EndpointRoute(NamedTuple):
    method: str
    pattern: str
    """Regular expression of the whole path."""
    handle: Callable[[ServerState, EndpointCall], "Json | Failure | HttpReply"]
    required_header: str = ""
    """Header that a request must have to match: some paths belong to several families."""


def _keep_reply(
    reply: HttpReply, body: Mapping[str, object], query: Mapping[str, str], profile: str
) -> HttpReply:
    return reply


def _keep_refusal(reply: HttpReply, param: str) -> HttpReply:
    return reply


UNSUPPORTED_TYPE = Failure(
    kind="invalid", message="Unsupported media type {given!r}: use 'application/json'", status=415
)


class ExtraEndpoints(Value, kw_only=True, gc=True):
    """Everything about a family's server except its main endpoint."""

    routes: tuple[EndpointRoute, ...] = ()
    is_own_request: Callable[[str, Mapping[str, str]], bool] = lambda path, headers: False
    """True if a client of this family would send this path and these headers."""
    not_found_message: str = "Not Found"
    """Error for an unknown URL; may contain `{method}` and `{path}`."""
    not_found_code: str = ""
    wrong_content_type: Failure = UNSUPPORTED_TYPE
    """Refusal of a body that is not declared as JSON; its message may contain `{given}`, the content type."""
    unsimulated_paths: re.Pattern[str] | None = None
    """Paths that the provider serves and the simulator does not."""
    request_id_header: str = ""
    """Header that carries the request id."""
    request_id: Callable[[str], str] = lambda digest: f"req_{digest[:24]}"
    reply_id: Callable[[str], str] = lambda digest: f"sim_{digest[:24]}"
    """Ids of an exchange and of a reply, made from the digest of the request."""
    call_prefix: str = "call_"
    """Prefix of call ids."""
    created_field: bytes = b""
    """Field of a reply that holds its creation time, as the codec writes it."""
    add_rejected_field: Callable[[HttpReply, str], HttpReply] = _keep_refusal
    """Adds the name of the offending field to a refusal, in families that report it separately."""
    expand_request: (
        Callable[[StoredObjects, Mapping[str, object], CallerContext], "Mapping[str, object] | Failure"]
        | None
    ) = None
    """Inserts the stored objects that a request refers to; returns the same object if there are none."""
    named_prompt_tokens: Callable[[StoredObjects, Mapping[str, object]], int] = lambda stored, body: 0
    """Number of prompt tokens stored under a name that the request gives."""
    adapt_reply: Callable[[HttpReply, Mapping[str, object], Mapping[str, str], str], HttpReply] = _keep_reply
    """Adapts an answer to the body and query of its request, and to the profile of the server."""
    store_reply: Callable[[StoredObjects, Mapping[str, object], HttpReply, float], None] | None = None
    """Stores the parts of an answer that later requests may refer to."""


def find_route(
    families: Mapping[str, ExtraEndpoints], method: str, url: str, headers: Mapping[str, str]
) -> tuple[str, EndpointRoute, Mapping[str, str]] | None:
    """Find the route for a request, with its family and the path parameters."""
    path = urlsplit(url).path.rstrip("/")
    for family, endpoints in families.items():
        for route in endpoints.routes:
            match = re.fullmatch(route.pattern, path) if route.method == method else None
            if match is not None and (not route.required_header or route.required_header in headers):
                path_params = {name: value for name, value in match.groupdict().items() if value is not None}
                return family, route, path_params
    return None


def not_found_failure(
    families: Mapping[str, ExtraEndpoints], method: str, url: str, headers: Mapping[str, str]
) -> tuple[str, Failure]:
    """Return the failure for an unknown URL and the family that words it."""
    path = urlsplit(url).path
    own = (family for family, each in families.items() if each.is_own_request(path, headers))
    family = next(own, [*families][-1])
    endpoints = families[family]
    message = endpoints.not_found_message.format(method=method, path=path)
    if (
        endpoints.unsimulated_paths is not None
        and endpoints.unsimulated_paths.fullmatch(path)
        and not has_doubled_path(url)
    ):
        message = UNSIMULATED_MESSAGE.format(method=method, path=path)
    return family, Failure(kind="not_found", message=message, status=NOT_FOUND, code=endpoints.not_found_code)


def has_doubled_path(url: str) -> bool:
    """True if a path repeats itself, as when both the base URL and the client add `/v1`."""
    steps = [step for step in urlsplit(url).path.split("/") if step]
    versions = [bool(VERSION_STEP.fullmatch(step)) for step in steps]
    if any(one and other for one, other in pairwise(versions)):
        return True
    return any(
        steps[at : at + size] == steps[at + size : at + 2 * size]
        for size in range(1, len(steps) // 2 + 1)
        for at in range(len(steps) - 2 * size + 1)
    )


def add_request_id(
    endpoints: ExtraEndpoints, answer: ResponseTimeline, request_body: bytes
) -> ResponseTimeline:
    """Add the request id to an answer. Equal requests get equal ids."""
    header = endpoints.request_id_header
    if not header or any(request_id == header for request_id, _ in answer.headers):
        return answer
    request_id = endpoints.request_id(blake2b(request_body, digest_size=16).hexdigest())
    if answer.status < ERROR_STATUS:
        return replace(answer, headers=(*answer.headers, (header, request_id)))
    id_field = b'"request_id":"%b"' % request_id.encode()
    steps: tuple[bytes | SilentPause | ConnectionCut, ...] = tuple(
        step.replace(EMPTY_REQUEST_ID, id_field) if isinstance(step, bytes) else step for step in answer.steps
    )
    return replace(answer, headers=(*answer.headers, (header, request_id)), steps=steps)


def add_created_time(endpoints: ExtraEndpoints, reply: HttpReply, now: float) -> HttpReply:
    """Set the creation time of a reply."""
    field = endpoints.created_field
    if not field:
        return reply
    dated = field.removesuffix(b"0") + str(int(now)).encode()
    return replace(reply, frames=tuple(frame.replace(field, dated, 1) for frame in reply.frames))


def page_items(
    items: Sequence[Json], query: Mapping[str, str], *, default: int, page_max: int, after: str = "after"
) -> tuple[list[Json], bool]:
    """Return the requested page of items, starting after the item with the given id, and if there are
    more."""
    ids = [item.get("id") for item in items]
    start = ids.index(query[after]) + 1 if query.get(after) in ids else 0
    limit = query.get("limit", "")
    size = min(int(limit), page_max) if limit.isdigit() and int(limit) else default
    return list(items[start : start + size]), start + size < len(items)


def parse_query(url: str) -> Mapping[str, str]:
    return dict(parse_qsl(urlsplit(url).query))


def json_reply(body: Json) -> HttpReply:
    return HttpReply(
        status=200,
        headers=(("content-type", "application/json"),),
        frames=(msgspec.json.encode(body),),
    )
