"""The conformance check for codecs passes good ones and finds every broken law."""

import pytest
from msgspec.structs import replace

from bridle.ports.codec import HttpReply
from bridle.providers import load_codec
from bridle.sim.families import find_family
from bridle.testing.conformance.codec import check_codec
from bridle.values.errors import MisuseError, ProviderError
from bridle.values.message import Reply, Stop, Text
from bridle.values.model import Origin


@pytest.mark.parametrize("family", ["anthropic", "scripted"])
def test_every_family_obeys_the_laws(family):
    codec = load_codec(family)
    assert codec.family == family
    check_codec(codec)


@pytest.mark.parametrize(
    "name", ["", "_sse", "__init__", "no_such_family", "../anthropic", "a.b", "catalogue"]
)
def test_only_families_can_be_loaded(name):
    with pytest.raises(MisuseError):
        load_codec(name)


class Bent:
    """An object that works, with one method replaced; a codec brings the server's side of its wire."""

    def __init__(self, codec, server=None):
        self._codec, self._server = codec, server

    def __getattr__(self, name):
        return getattr(self._codec if hasattr(self._codec, name) else self._server, name)


def make_codec(**changed):
    return type("Other", (Bent,), changed)(load_codec("scripted"), find_family("scripted"))


def make_decoding_codec(**changed):
    def decoder(self, request, status, headers):
        return type("Other", (Bent,), changed)(self._codec.new_decoder(request, status, headers))

    return make_codec(new_decoder=decoder)


def loud(self, reply, *, stream):
    return self._server.encode_reply(replace(reply, parts=(*reply.parts, Text(text="!"))), stream=stream)


def sliced(self, data):
    return self._codec.feed(data) if len(data) != 5 else []


def crashing(self, data):
    try:
        return self._codec.feed(data)
    except ProviderError as error:
        raise KeyError("delta") from error


def accepting(self):
    """What was said so far is a reply, whether or not it was all."""
    try:
        return self._codec.close()
    except ProviderError:
        if not self._codec.partial_text:
            raise
        origin = Origin(family="scripted", endpoint="scripted", model="m")
        return Reply(parts=(Text(text=self._codec.partial_text),), stop=Stop.DONE, origin=origin)


def restless(self, request, kept=None):
    self.count = getattr(self, "count", 0) + 1
    encoded = self._codec.encode(request, kept)
    return replace(encoded, body=encoded.body + b" " * self.count)


def changing_first(self, request, kept=None):
    encoded = self._codec.encode(request, kept)
    return replace(encoded, body=b" " * len(request.messages) + encoded.body)


def same_digest(self, request, kept=None):
    return replace(self._codec.encode(request, kept), digest="0")


def forgetful(self, request):
    return replace(self._codec.decode_request(request), messages=())


def calm(self, failure):
    return self._server.encode_failure(replace(failure, kind="server"))


def cheerful(self, failure):
    return HttpReply(status=200, headers=(), frames=self._server.encode_failure(failure).frames)


@pytest.mark.parametrize(
    ("codec", "law"),
    [
        (make_codec(encode_reply=loud), "decode\\(encode_reply"),
        (make_decoding_codec(feed=sliced), "slices"),
        (make_decoding_codec(feed=crashing), "only ProviderError"),
        (make_decoding_codec(close=accepting), "half a reply"),
        (make_codec(encode=restless), "deterministic"),
        (make_codec(encode=changing_first), "begins as request k"),
        (make_codec(encode=same_digest), "digest"),
        (make_codec(decode_request=forgetful), "decode_request\\(encode"),
        (make_codec(encode_failure=calm), "kind"),
        (make_codec(encode_failure=cheerful), "kind"),
    ],
)
def test_a_broken_law_is_named(codec, law):
    with pytest.raises(AssertionError, match=law):
        check_codec(codec, server=codec)
