"""One request in, one answer out, as the provider would give it.

The family is the host of the address (`sim://FAMILY/path`); its codec reads the
request and speaks the answer, its rules refuse what the provider would refuse, in
the provider's words.  Nothing in this file knows which family that is.

The answer is a function of the request and of nothing else, so it can be asked for
twice, replayed and compared.
"""

import json
import re
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from ..ports.codec import HttpReply, HttpRequest
from ..ports.transport import Outgoing
from ..providers import load
from ..providers.catalogue import find
from ..values.errors import Failure, MisuseError, ProviderError, UnknownModel
from ..values.model import Abilities
from ..values.request import Request
from .brain import Brain, decide
from .rules import Asked, check, rules_of
from .tokens import measured

SCHEME = "sim"
LONE_SURROGATE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])")


async def answer(outgoing: Outgoing) -> HttpReply:
    """The application behind `sim:` models."""
    return respond(outgoing)


def respond(outgoing: Outgoing, brain: Brain = decide) -> HttpReply:
    family, path = _address(outgoing.url)
    codec = load(family)
    wire = HttpRequest(path=path, body=outgoing.body, headers=outgoing.headers, method=outgoing.method)
    body, malformed = _parsed(outgoing.body)
    request: Request | None = None
    unread: Failure | None = None
    try:
        request = codec.read(wire)
    except ProviderError as error:
        unread = error.failure
    abilities = _abilities(family, request.model.id if request else str(body.get("model", "")))
    asked = Asked(
        path=path,
        headers=_headers(outgoing.headers),
        body=body,
        size=len(outgoing.body),
        malformed=malformed,
        abilities=abilities,
    )
    violation = check(rules_of(family), asked)
    if violation is not None:
        return codec.speak_failure(violation.failure)
    if request is None:
        assert unread is not None
        return codec.speak_failure(unread)
    if abilities is not None:
        request = replace(request, model=replace(request.model, abilities=abilities))
    return codec.speak(measured(request, brain(request)), stream=request.stream)


def _address(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    if parts.scheme != SCHEME or not parts.netloc:
        raise MisuseError(f"the simulator is reached at {SCHEME}://FAMILY/path, not at {url!r}")
    return parts.netloc, parts.path


def _abilities(family: str, model: str) -> Abilities | None:
    try:
        return find(f"{SCHEME}:{family}/{model}", environ={}).abilities
    except UnknownModel:
        return None


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
