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

from ..ports.codec import Codec, HttpReply, HttpRequest
from ..ports.transport import Outgoing
from ..providers import load
from ..providers.catalogue import SIMULATED_AS, find, known, open_profile
from ..values.errors import Failure, MisuseError, ProviderError, UnknownModel
from ..values.message import Reply
from ..values.model import Abilities, Model
from ..values.request import Request
from ..values.usage import Usage
from ..values.value import Value
from .answer_shape import with_answer_shape
from .brain import decide
from .client_tools import Offer, form_calls, list_callable
from .fragments import join_fragments
from .manners import in_the_manner_of
from .profiles import profile_of
from .prompt import Prompt, prompt_of
from .reasoning import complete_reasoning, display_reasoning
from .rules import Asked, Rule, Violation, check, rules_of
from .seals import seal_rules_of, sealed
from .summary import as_read, compacted, weighed

T = TypeVar("T")
SCHEME = "sim"
PACKINGS = {"gzip": 31, "deflate": 15}
"""How bodies may be packed, and what the unpacker calls it."""
UNPACKED_BYTES_MAX = 64 * 1024 * 1024
"""Twice what any provider takes: a small body must not become a machine's whole memory."""
TABLES = "BRIDLE_MODELS"
MODEL_IN_PATH = re.compile(r"/models?/([^/]+?)(?::[a-zA-Z]+)?(?:/|$)")
TOO_DEEP = "it is nested too deeply"
LONE_SURROGATE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])")


class Heard(Value):
    """A request as its family heard it."""

    codec: Codec
    asked: Asked
    request: Request | Failure
    """What it asks for, or why nobody can tell."""
    manners: str
    """The profile that the tables give whoever serves the model asked for."""
    offers: Mapping[str, Offer] = {}
    """Tools of the client that are no plain functions, by the names they are called by."""
    prompt: Prompt | None = None
    """How its family lays it out; None when the family does not say."""

    @property
    def counted(self) -> Usage | None:
        """The prompt's tokens, none of them cached."""
        return Usage(input=self.asked.prompt_tokens) if self.prompt else None


def hear(outgoing: Outgoing) -> Heard:
    outgoing, packed_badly = _unpacked(outgoing)
    codec, request = _read(outgoing)
    body, malformed = ({}, packed_badly) if packed_badly else _parsed(outgoing.body)
    path = urlsplit(outgoing.url).path
    model = _model(path, body) if isinstance(request, Failure) else request.model.id
    tables = os.environ.get(TABLES, "")
    headers = _headers(outgoing.headers)
    played = headers.get(SIMULATED_AS, "")
    abilities = _abilities(codec.family, model, tables, played)
    prompt = prompt_of(codec.family, body, abilities)
    asked = Asked(
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
        request = as_read(codec.family, request)
    offers: Mapping[str, Offer] = {}
    if isinstance(request, Request):
        request, offers = list_callable(codec.family, join_fragments(codec.family, request))
    manners = profile_of(codec.family, model, tables, played)
    return Heard(codec=codec, asked=asked, request=request, manners=manners, offers=offers, prompt=prompt)


def objection(heard: Heard, profile: str = "") -> Violation | None:
    """The first rule that this request breaks; a profile that is named goes before the tables'."""
    return check(_rules(heard.codec.family, profile or heard.manners), heard.asked)


@lru_cache(maxsize=64)
def _rules(family: str, profile: str) -> tuple[Rule, ...]:
    """Finding a table means searching the folder: too slow for every request."""
    return (*rules_of(family, profile), *seal_rules_of(family))


def respond(outgoing: Outgoing, brain: Callable[[Request], Reply] = decide, profile: str = "") -> HttpReply:
    """The whole road without any memory: rules, brain, wire."""
    heard = hear(outgoing)
    violation, request = objection(heard, profile), heard.request
    if violation is not None:
        return heard.codec.speak_failure(violation.failure)
    if isinstance(request, Failure):
        return heard.codec.speak_failure(request)
    said, family = answer_to(heard, request, brain), heard.codec.family
    said = in_the_manner_of(profile or heard.manners, heard.asked, said)
    said = form_calls(heard.offers, complete_reasoning(family, heard.asked, said))
    reply, _ = weighed(family, heard.asked, request, said, heard.counted, heard.prompt)
    reply = sealed(family, heard.asked, display_reasoning(family, heard.asked, reply))
    return heard.codec.speak(reply, stream=request.stream)


def answer_to(heard: Heard, request: Request, brain: Callable[[Request], T]) -> T | Reply:
    """What the brain decides; a summary is the provider's own doing."""
    family = heard.codec.family
    if request.compacts:
        return compacted(family, heard.asked, request)
    return brain(with_answer_shape(family, heard.asked.body, request))


def _unpacked(outgoing: Outgoing) -> tuple[Outgoing, str]:
    """The request as it was before it was packed, and why that cannot be told."""
    packing = _headers(outgoing.headers).get("content-encoding", "").lower()
    if packing in ("", "identity"):
        return outgoing, ""
    if packing not in PACKINGS:
        return outgoing, f"bodies packed as {packing!r} are not read here"
    unpacker = zlib.decompressobj(PACKINGS[packing])
    try:
        body = unpacker.decompress(outgoing.body, UNPACKED_BYTES_MAX)
    except zlib.error:
        return outgoing, f"the body is not valid {packing}"
    if not unpacker.eof:
        return outgoing, f"the body is not valid {packing}, or too large"
    kept = tuple((name, value) for name, value in outgoing.headers if name.lower() != "content-encoding")
    return replace(outgoing, headers=kept, body=body), ""


def _model(path: str, body: Mapping[str, object]) -> str:
    """The model asked for, by a request that is otherwise not understood: in its body, or in its path."""
    in_path = MODEL_IN_PATH.search(path)
    return str(body.get("model") or "") or (unquote(in_path[1]) if in_path else "")


def _read(outgoing: Outgoing) -> tuple[Codec, Request | Failure]:
    """The family that answers, and the request as it understands it or why it does not."""
    address = urlsplit(outgoing.url)
    families = families_at(outgoing.url)
    wire = HttpRequest(
        path=address.path, body=outgoing.body, headers=outgoing.headers, method=outgoing.method
    )
    unread: tuple[Codec, Failure] | None = None
    for family in families:
        codec = load(family)
        try:
            return codec, codec.read(wire)
        except ProviderError as error:
            if error.failure.kind != "not_found":
                return codec, error.failure
            unread = unread or (codec, error.failure)
        except RecursionError:
            return codec, Failure(kind="invalid", message=TOO_DEEP, status=400)
    if unread is None:
        raise MisuseError("there is no wire family in the tables, so nobody can be simulated")
    return unread


def families_at(url: str) -> tuple[str, ...]:
    """Who may answer at an address."""
    address = urlsplit(url)
    return (address.netloc,) if address.scheme == SCHEME else _families(os.environ.get(TABLES, ""))


def models() -> tuple[Model, ...]:
    """Every model the tables know."""
    return known({TABLES: os.environ.get(TABLES, "")})


@lru_cache(maxsize=4)
def _families(tables: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(model.endpoint.family for model in known({TABLES: tables})))


@lru_cache(maxsize=256)
def _abilities(family: str, model: str, tables: str, played: str) -> Abilities | None:
    """Facts about a model; None when it is not in the tables, under its name or a dated one.

    `played` is an endpoint that serves any model.
    """
    environ = {TABLES: tables}
    if played and model and open_profile(played, environ=environ) is not None:
        return find(f"{SCHEME}:={played}/{model}", environ=environ).abilities
    try:
        found = find(f"{SCHEME}:={family}/{model}", environ=environ)
    except UnknownModel:
        return None
    named = any(model == other.id and family == other.endpoint.family for other in known(environ))
    return found.abilities if named or found.price is not None else None


def _headers(pairs: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """By name in lower case; one that was sent twice is read as a list, as servers do."""
    headers: dict[str, str] = {}
    for name, value in pairs:
        key = name.lower()
        headers[key] = f"{headers[key]}, {value}" if key in headers else value
    return headers


def _parsed(data: bytes) -> tuple[Mapping[str, object], str]:
    """The body, or nothing and the reason why it is not one."""
    try:
        body: object = msgspec.json.decode(data)
    except RecursionError:
        return {}, TOO_DEEP
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return {}, _why(data, error)
    return (body, "") if isinstance(body, dict) else ({}, "the top level must be an object")


def _why(data: bytes, error: Exception) -> str:
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
