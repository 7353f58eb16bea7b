"""Every wire family with one of its models, and a request to a simulator in that format."""

import asyncio
from collections.abc import Callable
from typing import Any

from bridle.ports.codec import HttpReply
from bridle.ports.transport import OutgoingRequest, ResponseTimeline
from bridle.providers import load_codec
from bridle.providers.catalogue import find_model, known_models
from bridle.sim.app import check_request, decide_reply, receive_request
from bridle.sim.compaction import measure_with_compaction
from bridle.sim.families import find_family
from bridle.sim.request_forms import convert_calls
from bridle.sim.responder.rule_based import respond
from bridle.sim.rules.profiles import apply_quirks
from bridle.sim.simulator import Simulator
from bridle.values.errors import Failure, ProviderError
from bridle.values.message import Message, Reply, Text
from bridle.values.model import Model
from bridle.values.request import Request, ToolSpec


def _models() -> dict[str, Model]:
    first: dict[str, str] = {}
    for model in known_models({}):
        first.setdefault(model.endpoint.family, model.id)
    return {family: find_model(f"sim:{family}/{name}", environ={}) for family, name in first.items()}


MODELS = _models()
FAMILIES = sorted(MODELS)
LOOK = ToolSpec(name="look", parameters='{"type":"object","properties":{"city":{"type":"string"}}}')


def question(family: str, prompt: str, *, stream: bool = True, **fields: Any) -> Request:
    said = Message(role="user", parts=(Text(text=prompt),), id="m1")
    fields = {"tools": (LOOK,), "max_tokens": 500, **fields}
    return Request(model=MODELS[family], messages=(said,), stream=stream, **fields)


def make_outgoing(request: Request) -> OutgoingRequest:
    encoded = load_codec(request.model.endpoint.family).encode(request)
    return OutgoingRequest(
        method=encoded.method,
        url=request.model.endpoint.base_url + encoded.path,
        headers=encoded.headers,
        body=encoded.body,
    )


def send_request(simulator: Simulator, request: Request) -> ResponseTimeline:
    return asyncio.run(simulator.answer(make_outgoing(request)))


def decode_answer(request: Request, timeline: ResponseTimeline | HttpReply) -> Reply | Failure:
    """What a client makes of an answer."""
    headers = {name.lower(): value for name, value in timeline.headers}
    decoder = load_codec(request.model.endpoint.family).new_decoder(request, timeline.status, headers)
    try:
        decoder.feed(timeline.body if isinstance(timeline, ResponseTimeline) else b"".join(timeline.frames))
        return decoder.close()
    except ProviderError as error:
        return error.failure


def reply_to(request: Request) -> Reply:
    return respond(request).reply


def answer_statelessly(
    outgoing: OutgoingRequest, responder: Callable[[Request], Reply] = reply_to, profile: str = ""
) -> HttpReply:
    """Answer a request without a simulator: check the rules, ask the responder, encode the reply."""
    received = receive_request(outgoing)
    violation, request = check_request(received, profile), received.request
    if violation is not None:
        return received.server.encode_failure(violation.failure)
    if isinstance(request, Failure):
        return received.server.encode_failure(request)
    decided, family = decide_reply(received, request, responder), find_family(received.codec.family)
    decided = apply_quirks(profile or received.profile, received.raw, decided)
    decided = convert_calls(received.offers, family.complete_reasoning(received.raw, decided))
    reply, _ = measure_with_compaction(
        family.compaction, received.raw, request, decided, received.prompt_usage, received.prompt
    )
    reply = family.sign_reply(received.raw, family.display_reasoning(received.raw, reply))
    return family.encode_reply(reply, stream=request.stream)
