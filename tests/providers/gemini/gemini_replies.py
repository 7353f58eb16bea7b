"""Replies of Gemini, for tests: made of chunks, and told as JSON or as events."""

import json

import pytest

from bridle.providers import load_codec
from bridle.values.errors import ProviderError
from bridle.values.model import Endpoint, Model
from bridle.values.request import Request

CODEC = load_codec("gemini")
ASKED = Request(model=Model(id="gemini-x", endpoint=Endpoint(name="here", family="gemini")))


def decode(body, status=200, headers=None, size=None, request=ASKED):
    decoder = CODEC.new_decoder(request, status, headers or {})
    step = size or len(body) or 1
    deltas = [delta for at in range(0, len(body), step) for delta in decoder.feed(body[at : at + step])]
    return decoder.close(), deltas


def outcome(read):
    """The reply, or the kind of failure."""
    try:
        return read()
    except ProviderError as error:
        return error.failure.kind


def failure(body, status=200, headers=None):
    with pytest.raises(ProviderError) as failed:
        decode(body, status, headers)
    return failed.value.failure


def chunk(*parts, finish=None, counts=None, candidate=None, **more):
    said = {"content": {"parts": list(parts), "role": "model"}, **(candidate or {})}
    if finish is not None:
        said["finishReason"] = finish
    return {"candidates": [said], **({"usageMetadata": counts} if counts else {}), **more}


def text(said, **more):
    return {"text": said, **more}


def called(name, args=None, **more):
    return {"functionCall": {"name": name, **({} if args is None else {"args": args})}, **more}


def stream(*chunks):
    return b"".join(b"data: " + json.dumps(each).encode() + b"\r\n\r\n" for each in chunks)


def streamed(*chunks, **more):
    return decode(stream(*chunks), **more)


def whole(*parts, **more):
    return decode(json.dumps(chunk(*parts, **more)).encode())[0]
