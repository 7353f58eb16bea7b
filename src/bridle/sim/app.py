"""Decodes a request for the provider it was sent to and finds the rule it breaks, without state.

The family whose codec can read the path of a request answers it; a `sim://FAMILY/path` URL names the family.
Its rules refuse what the provider would refuse, in the provider's words. Nothing here depends on which family
that is.

The same request and the same model tables always give the same answer. `simulator.py` holds the state that
lasts from one request to the next.
"""

import json
import os
import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import TypeVar
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec.structs import replace

from bridle.ports.codec import Codec, HttpRequest, ServerCodec
from bridle.ports.served_wire import ClientTool
from bridle.ports.transport import OutgoingRequest
from bridle.providers import load_codec
from bridle.providers.catalogue import SIMULATED_ENDPOINT_HEADER, find_model, find_open_profile, known_models
from bridle.sim.cache.prompt_layout import PromptText
from bridle.sim.rules.engine import ProviderRule, RawRequest, RuleViolation, find_violation
from bridle.sim.rules.profiles import find_server_profile
from bridle.values.base import Value
from bridle.values.errors import Failure, MisuseError, ProviderError, UnknownModel
from bridle.values.message import Reply
from bridle.values.model import Abilities, Model
from bridle.values.request import Request
from bridle.values.usage import Usage

from .compaction import answer_compaction_request, open_sealed_summaries
from .families import find_family, lay_out_for_family, list_rules, signature_rules
from .request_forms import add_answer_schema, convert_client_tools, join_fragments

T = TypeVar("T")
SCHEME = "sim"
COMPRESSIONS = {"gzip": 31, "deflate": 15}
"""Supported content encodings, with the `wbits` value that zlib needs for each."""
DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024
"""Twice what any provider accepts. The limit stops a small compressed body from exhausting memory."""
MODELS_VARIABLE = "BRIDLE_MODELS"
MODEL_IN_PATH = re.compile(r"/models?/([^/]+?)(?::[a-zA-Z]+)?(?:/|$)")
TOO_DEEP = "it is nested too deeply"
LONE_SURROGATE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])")


class ReceivedRequest(Value, kw_only=True, gc=True):
    """A request as its family decoded it."""

    codec: Codec
    raw: RawRequest
    request: Request | Failure
    """The decoded request, or the reason why it cannot be decoded."""
    profile: str
    """Name of the server profile that the tables give to the endpoint of the requested model."""
    offers: Mapping[str, ClientTool] = {}
    """Client tools that are not plain functions, by the names used in calls."""
    prompt: PromptText | None = None
    """The prompt as its family lays it out; None if the family does not define a layout."""

    @property
    def server(self) -> ServerCodec:
        """The provider's side of the wire that the request came on."""
        return find_family(self.codec.family)

    @property
    def prompt_usage(self) -> Usage | None:
        """Tokens of the prompt, all uncached."""
        return Usage(input=self.raw.prompt_tokens) if self.prompt else None


def receive_request(outgoing: OutgoingRequest) -> ReceivedRequest:
    outgoing, decompress_error = _decompress(outgoing)
    codec, request = _decode_request(outgoing)
    body, malformed = ({}, decompress_error) if decompress_error else _parse_body(outgoing.body)
    path = urlsplit(outgoing.url).path
    model = _find_model_name(path, body) if isinstance(request, Failure) else request.model.id
    tables = os.environ.get(MODELS_VARIABLE, "")
    headers = _merge_headers(outgoing.headers)
    simulated_endpoint = headers.get(SIMULATED_ENDPOINT_HEADER, "")
    abilities = _find_abilities(codec.family, model, tables, simulated_endpoint)
    prompt = lay_out_for_family(codec.family, body, abilities)
    raw = RawRequest(
        path=path,
        headers=headers,
        body=body,
        size=len(outgoing.body),
        malformed=malformed,
        abilities=abilities,
        prompt_tokens=prompt.tokens if prompt else 0,
    )
    if raw.abilities is not None and isinstance(request, Request):
        request = replace(request, model=replace(request.model, abilities=raw.abilities))
        request = open_sealed_summaries(find_family(codec.family).compaction, request)
    offers: Mapping[str, ClientTool] = {}
    if isinstance(request, Request):
        family = find_family(codec.family)
        request = join_fragments(family.join_model_messages, request)
        request, offers = convert_client_tools(family.list_client_tools, request)
    server_profile = find_server_profile(codec.family, model, tables, simulated_endpoint)
    return ReceivedRequest(
        codec=codec, raw=raw, request=request, profile=server_profile, offers=offers, prompt=prompt
    )


def check_request(received: ReceivedRequest, profile: str = "") -> RuleViolation | None:
    """Return the first rule that the request breaks. A `profile` argument overrides the one in the tables."""
    return find_violation(_load_rules(received.codec.family, profile or received.profile), received.raw)


@lru_cache(maxsize=64)
def _load_rules(family: str, profile: str) -> tuple[ProviderRule, ...]:
    return (*list_rules(family, profile), *signature_rules(family))


def decide_reply(received: ReceivedRequest, request: Request, responder: Callable[[Request], T]) -> T | Reply:
    """Return the responder's decision, or the provider's own summary if the request asks for one."""
    family = find_family(received.codec.family)
    if request.asks_native_summary:
        return answer_compaction_request(family.compaction, received.raw, request)
    return responder(add_answer_schema(family.find_schema, received.raw.body, request))


def _decompress(outgoing: OutgoingRequest) -> tuple[OutgoingRequest, str]:
    """Return the request with its body decompressed, and an error message if that fails."""
    encoding = _merge_headers(outgoing.headers).get("content-encoding", "").lower()
    if encoding in ("", "identity"):
        return outgoing, ""
    if encoding not in COMPRESSIONS:
        return outgoing, f"content encoding {encoding!r} is not supported"
    decompressor = zlib.decompressobj(COMPRESSIONS[encoding])
    try:
        body = decompressor.decompress(outgoing.body, DECOMPRESSED_BYTES_MAX)
    except zlib.error:
        return outgoing, f"the body is not valid {encoding}"
    if not decompressor.eof:
        return outgoing, f"the body is not valid {encoding}, or too large"
    headers = tuple((name, value) for name, value in outgoing.headers if name.lower() != "content-encoding")
    return replace(outgoing, headers=headers, body=body), ""


def _find_model_name(path: str, body: Mapping[str, object]) -> str:
    """Find the requested model in the body or the path of a request that the codec cannot decode."""
    in_path = MODEL_IN_PATH.search(path)
    return str(body.get("model") or "") or (unquote(in_path[1]) if in_path else "")


def _decode_request(outgoing: OutgoingRequest) -> tuple[Codec, Request | Failure]:
    """Return the codec of the family that answers, with the decoded request or its failure."""
    address = urlsplit(outgoing.url)
    families = families_at_url(outgoing.url)
    wire = HttpRequest(
        path=address.path, body=outgoing.body, headers=outgoing.headers, method=outgoing.method
    )
    not_found: tuple[Codec, Failure] | None = None
    for family in families:
        codec = load_codec(family)
        try:
            return codec, codec.decode_request(wire)
        except ProviderError as error:
            if error.failure.kind != "not_found":
                return codec, error.failure
            not_found = not_found or (codec, error.failure)
        except RecursionError:
            return codec, Failure(kind="invalid", message=TOO_DEEP, status=400)
    if not_found is None:
        raise MisuseError("the model tables define no wire family, so the simulator cannot answer")
    return not_found


def families_at_url(url: str) -> tuple[str, ...]:
    """List the families that may answer at this URL."""
    address = urlsplit(url)
    return (
        (address.netloc,)
        if address.scheme == SCHEME
        else _known_families(os.environ.get(MODELS_VARIABLE, ""))
    )


def list_models() -> tuple[Model, ...]:
    """List every model in the tables."""
    return known_models({MODELS_VARIABLE: os.environ.get(MODELS_VARIABLE, "")})


@lru_cache(maxsize=4)
def _known_families(tables: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(model.endpoint.family for model in known_models({MODELS_VARIABLE: tables})))


@lru_cache(maxsize=256)
def _find_abilities(family: str, model: str, tables: str, simulated_endpoint: str) -> Abilities | None:
    """Return the abilities of a model, or None if neither its name nor a dated form of it is in the tables.

    `played` names an endpoint that serves any model.
    """
    environ = {MODELS_VARIABLE: tables}
    if simulated_endpoint and model and find_open_profile(simulated_endpoint, environ=environ) is not None:
        return find_model(f"{SCHEME}:={simulated_endpoint}/{model}", environ=environ).abilities
    try:
        found = find_model(f"{SCHEME}:={family}/{model}", environ=environ)
    except UnknownModel:
        return None
    named = any(model == other.id and family == other.endpoint.family for other in known_models(environ))
    return found.abilities if named or found.price is not None else None


def _merge_headers(pairs: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """Map header names in lower case to values; repeated headers are joined with commas, as servers do."""
    headers: dict[str, str] = {}
    for name, value in pairs:
        key = name.lower()
        headers[key] = f"{headers[key]}, {value}" if key in headers else value
    return headers


def _parse_body(data: bytes) -> tuple[Mapping[str, object], str]:
    """Return the parsed body and "", or an empty body and the error message."""
    try:
        body: object = msgspec.json.decode(data)
    except RecursionError:
        return {}, TOO_DEEP
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return {}, _explain_bad_json(data, error)
    return (body, "") if isinstance(body, dict) else ({}, "the top level must be an object")


def _explain_bad_json(data: bytes, error: Exception) -> str:
    """Describe the JSON error in the words most servers use, with its line and column."""
    try:
        text = data.decode()
        json.loads(text)
    except ValueError as plain:
        return str(plain)
    lone = LONE_SURROGATE.search(text)
    if lone is None:
        return str(error)
    line = text.count("\n", 0, lone.end()) + 1
    column = lone.end() - (text.rfind("\n", 0, lone.end()) + 1)
    return f"no low surrogate in string: line {line} column {column + 1} (char {lone.end()})"
