"""The heart of the simulator: what a request means to the provider it was sent to, and what is wrong with it.

The family whose codec can read a request's path is the one that answers; an address
may also name it (`sim://FAMILY/path`).  Its rules refuse what the provider would
refuse, in the provider's words.  Nothing in this file knows which family that is.

Nothing here is remembered: the same request and the same tables give the same answer.
What has to be remembered between two requests is the business of `simulator.py`.
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

from bridle.ports.codec import Codec, HttpReply, HttpRequest, ServerCodec
from bridle.ports.transport import OutgoingRequest
from bridle.providers import load_codec
from bridle.providers.catalogue import SIMULATED_ENDPOINT_HEADER, find_model, find_open_profile, known_models
from bridle.sim.cache.prompt_layout import PromptText
from bridle.sim.responder.rule_based import reply_to
from bridle.sim.rules.engine import ProviderRule, RawRequest, RuleViolation, find_violation
from bridle.sim.rules.profiles import find_server_profile
from bridle.values.base import Value
from bridle.values.errors import Failure, MisuseError, ProviderError, UnknownModel
from bridle.values.message import Reply
from bridle.values.model import Abilities, Model
from bridle.values.request import Request
from bridle.values.usage import Usage

from .compaction import answer_compaction_request, measure_with_compaction, open_sealed_summaries
from .families import find_family, lay_out_for_family, list_rules, signature_rules
from .request_forms import ClientTool, add_answer_schema, convert_calls, convert_client_tools, join_fragments
from .server_quirks import apply_quirks

T = TypeVar("T")
SCHEME = "sim"
COMPRESSIONS = {"gzip": 31, "deflate": 15}
"""How bodies may be packed, and what the unpacker calls it."""
DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024
"""Twice what any provider takes: a small body must not become a machine's whole memory."""
MODELS_VARIABLE = "BRIDLE_MODELS"
MODEL_IN_PATH = re.compile(r"/models?/([^/]+?)(?::[a-zA-Z]+)?(?:/|$)")
TOO_DEEP = "it is nested too deeply"
LONE_SURROGATE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])")


class ReceivedRequest(Value):
    """A request as its family heard it."""

    codec: Codec
    raw: RawRequest
    request: Request | Failure
    """What it asks for, or why nobody can tell."""
    profile: str
    """The profile that the tables give whoever serves the model asked for."""
    offers: Mapping[str, ClientTool] = {}
    """Tools of the client that are no plain functions, by the names they are called by."""
    prompt: PromptText | None = None
    """How its family lays it out; None when the family does not say."""

    @property
    def server(self) -> ServerCodec:
        """The provider's side of the wire that the request came on."""
        return find_family(self.codec.family)

    @property
    def prompt_usage(self) -> Usage | None:
        """The prompt's tokens, none of them cached."""
        return Usage(input=self.raw.prompt_tokens) if self.prompt else None


def receive_request(outgoing: OutgoingRequest) -> ReceivedRequest:
    outgoing, packed_badly = _decompress(outgoing)
    codec, request = _decode_request(outgoing)
    body, malformed = ({}, packed_badly) if packed_badly else _parse_body(outgoing.body)
    path = urlsplit(outgoing.url).path
    model = _find_model_name(path, body) if isinstance(request, Failure) else request.model.id
    tables = os.environ.get(MODELS_VARIABLE, "")
    headers = _merge_headers(outgoing.headers)
    played = headers.get(SIMULATED_ENDPOINT_HEADER, "")
    abilities = _find_abilities(codec.family, model, tables, played)
    prompt = lay_out_for_family(codec.family, body, abilities)
    asked = RawRequest(
        path=path,
        headers=headers,
        body=body,
        size=len(outgoing.body),
        malformed=malformed,
        abilities=abilities,
        prompt_tokens=prompt.tokens if prompt else 0,
    )
    if asked.abilities is not None and isinstance(request, Request):
        request = replace(request, model=replace(request.model, abilities=asked.abilities))
        request = open_sealed_summaries(find_family(codec.family).compaction, request)
    offers: Mapping[str, ClientTool] = {}
    if isinstance(request, Request):
        family = find_family(codec.family)
        request = join_fragments(family.join_model_messages, request)
        request, offers = convert_client_tools(family.list_client_tools, request)
    manners = find_server_profile(codec.family, model, tables, played)
    return ReceivedRequest(
        codec=codec, raw=asked, request=request, profile=manners, offers=offers, prompt=prompt
    )


def check_request(heard: ReceivedRequest, profile: str = "") -> RuleViolation | None:
    """The first rule that this request breaks; a profile that is named goes before the tables'."""
    return find_violation(_load_rules(heard.codec.family, profile or heard.profile), heard.raw)


@lru_cache(maxsize=64)
def _load_rules(family: str, profile: str) -> tuple[ProviderRule, ...]:
    return (*list_rules(family, profile), *signature_rules(family))


def answer_statelessly(
    outgoing: OutgoingRequest, responder: Callable[[Request], Reply] = reply_to, profile: str = ""
) -> HttpReply:
    """The whole road without any memory: rules, brain, wire."""
    heard = receive_request(outgoing)
    violation, request = check_request(heard, profile), heard.request
    if violation is not None:
        return heard.server.encode_failure(violation.failure)
    if isinstance(request, Failure):
        return heard.server.encode_failure(request)
    said, family = decide_reply(heard, request, responder), find_family(heard.codec.family)
    said = apply_quirks(profile or heard.profile, heard.raw, said)
    said = convert_calls(heard.offers, family.complete_reasoning(heard.raw, said))
    reply, _ = measure_with_compaction(
        family.compaction, heard.raw, request, said, heard.prompt_usage, heard.prompt
    )
    reply = family.sign_reply(heard.raw, family.display_reasoning(heard.raw, reply))
    return family.encode_reply(reply, stream=request.stream)


def decide_reply(heard: ReceivedRequest, request: Request, responder: Callable[[Request], T]) -> T | Reply:
    """What the brain decides; a summary is the provider's own doing."""
    family = find_family(heard.codec.family)
    if request.asks_native_summary:
        return answer_compaction_request(family.compaction, heard.raw, request)
    return responder(add_answer_schema(family.find_schema, heard.raw.body, request))


def _decompress(outgoing: OutgoingRequest) -> tuple[OutgoingRequest, str]:
    """The request as it was before it was packed, and why that cannot be told."""
    packing = _merge_headers(outgoing.headers).get("content-encoding", "").lower()
    if packing in ("", "identity"):
        return outgoing, ""
    if packing not in COMPRESSIONS:
        return outgoing, f"bodies packed as {packing!r} are not read here"
    unpacker = zlib.decompressobj(COMPRESSIONS[packing])
    try:
        body = unpacker.decompress(outgoing.body, DECOMPRESSED_BYTES_MAX)
    except zlib.error:
        return outgoing, f"the body is not valid {packing}"
    if not unpacker.eof:
        return outgoing, f"the body is not valid {packing}, or too large"
    kept = tuple((name, value) for name, value in outgoing.headers if name.lower() != "content-encoding")
    return replace(outgoing, headers=kept, body=body), ""


def _find_model_name(path: str, body: Mapping[str, object]) -> str:
    """The model asked for, by a request that is otherwise not understood: in its body, or in its path."""
    in_path = MODEL_IN_PATH.search(path)
    return str(body.get("model") or "") or (unquote(in_path[1]) if in_path else "")


def _decode_request(outgoing: OutgoingRequest) -> tuple[Codec, Request | Failure]:
    """The family that answers, and the request as it understands it or why it does not."""
    address = urlsplit(outgoing.url)
    families = families_at_url(outgoing.url)
    wire = HttpRequest(
        path=address.path, body=outgoing.body, headers=outgoing.headers, method=outgoing.method
    )
    unread: tuple[Codec, Failure] | None = None
    for family in families:
        codec = load_codec(family)
        try:
            return codec, codec.decode_request(wire)
        except ProviderError as error:
            if error.failure.kind != "not_found":
                return codec, error.failure
            unread = unread or (codec, error.failure)
        except RecursionError:
            return codec, Failure(kind="invalid", message=TOO_DEEP, status=400)
    if unread is None:
        raise MisuseError("there is no wire family in the tables, so nobody can be simulated")
    return unread


def families_at_url(url: str) -> tuple[str, ...]:
    """Who may answer at an address."""
    address = urlsplit(url)
    return (
        (address.netloc,)
        if address.scheme == SCHEME
        else _known_families(os.environ.get(MODELS_VARIABLE, ""))
    )


def list_models() -> tuple[Model, ...]:
    """Every model the tables know."""
    return known_models({MODELS_VARIABLE: os.environ.get(MODELS_VARIABLE, "")})


@lru_cache(maxsize=4)
def _known_families(tables: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(model.endpoint.family for model in known_models({MODELS_VARIABLE: tables})))


@lru_cache(maxsize=256)
def _find_abilities(family: str, model: str, tables: str, played: str) -> Abilities | None:
    """Facts about a model; None when it is not in the tables, under its name or a dated one.

    `played` is an endpoint that serves any model.
    """
    environ = {MODELS_VARIABLE: tables}
    if played and model and find_open_profile(played, environ=environ) is not None:
        return find_model(f"{SCHEME}:={played}/{model}", environ=environ).abilities
    try:
        found = find_model(f"{SCHEME}:={family}/{model}", environ=environ)
    except UnknownModel:
        return None
    named = any(model == other.id and family == other.endpoint.family for other in known_models(environ))
    return found.abilities if named or found.price is not None else None


def _merge_headers(pairs: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """By name in lower case; one that was sent twice is read as a list, as servers do."""
    headers: dict[str, str] = {}
    for name, value in pairs:
        key = name.lower()
        headers[key] = f"{headers[key]}, {value}" if key in headers else value
    return headers


def _parse_body(data: bytes) -> tuple[Mapping[str, object], str]:
    """The body, or nothing and the reason why it is not one."""
    try:
        body: object = msgspec.json.decode(data)
    except RecursionError:
        return {}, TOO_DEEP
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return {}, _explain_bad_json(data, error)
    return (body, "") if isinstance(body, dict) else ({}, "the top level must be an object")


def _explain_bad_json(data: bytes, error: Exception) -> str:
    """The reason in the words most servers use, with a place a person can find."""
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
