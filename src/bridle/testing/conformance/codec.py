"""Conformance check for codecs.

    check_codec(CODEC)                      # AssertionError names the law that is broken, and by what

Every law has a function below. The samples (`codec_samples`) contain only what every family can carry; pass
`replies` and `requests` to check more.

`decode_request(encode(r)) == r` holds except for what no wire carries, which `normalize_request` removes:

- abilities, prices and endpoint of a model: only its name is sent
- ids, parents, times, origins, counts and stops of messages; calls get new ids
- blank texts, empty messages, and the boundaries between neighbouring messages of one role
- effect, deadline and in-doubt behaviour of a tool
- the kind of error of a result; name and description of an output schema
- the spelling of JSON that keeps its value

A family that loses more passes its own function as `forget`.

Nothing here depends on a family or on the speed of a codec.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from random import Random

from msgspec.structs import replace

from bridle.ports.codec import Codec, HttpReply, ServerCodec
from bridle.sim.families import find_family
from bridle.values.errors import Failure, ProviderError
from bridle.values.message import Reply
from bridle.values.request import Request
from bridle.values.result import TextDelta

from .codec_samples import SAMPLE_FAILURES, normalize_request, request_for, sample_replies, sample_requests

SIZES = (1, 2, 3, 5, 16, 61, 1024)
SEED = 20_261_115
GARBLED_TRIES = 150

Normalizer = Callable[[Request], Request]


def check_codec(
    codec: Codec,
    *,
    server: ServerCodec | None = None,
    replies: Sequence[Reply] = (),
    requests: Sequence[Request] = (),
    forget: Normalizer | None = None,
) -> None:
    """Raise `AssertionError` naming the first law that the codec breaks.

    `server` encodes what the codec must decode; by default it is the simulated family of the same name.
    """
    server = server or find_family(codec.family)
    all_replies = [*sample_replies(codec.family), *replies]
    all_requests = [*sample_requests(codec.family), *requests]
    for reply in all_replies:
        for stream in (False, True):
            encoded = server.encode_reply(reply, stream=stream)
            check_replies_round_trip(codec, reply, encoded)
            check_slicing(codec, reply, encoded, stream=stream)
            check_cut_replies(codec, reply, encoded)
            check_garbled_bytes(codec, reply, encoded)
    for request in all_requests:
        check_deterministic_encoding(codec, request)
        check_stable_prefix(codec, request)
        check_requests_round_trip(codec, request, forget or (lambda same: same))
    for failure in SAMPLE_FAILURES:
        check_failures_round_trip(codec, server, failure)


def check_replies_round_trip(codec: Codec, reply: Reply, encoded: HttpReply) -> None:
    decoded = decode_slices(codec, reply, encoded, list(encoded.frames))
    if not isinstance(decoded, Reply):
        raise AssertionError(f"decode(encode_reply(x)) == x: it failed with {decoded}\nreply: {reply}")
    expected = replace(
        reply,
        id=reply.id or decoded.id,
        stop_detail=reply.stop_detail or decoded.stop_detail,
    )
    _expect_equal("decode(encode_reply(x)) == x", expected, decoded)


def check_slicing(codec: Codec, reply: Reply, encoded: HttpReply, *, stream: bool) -> None:
    body = b"".join(encoded.frames)
    whole = decode_slices(codec, reply, encoded, [body])
    random = Random(SEED)
    ways = [[body[at : at + size] for at in range(0, len(body), size)] for size in SIZES]
    for _ in range(5):
        places = sorted(random.sample(range(len(body)), min(12, len(body))))
        ways.append([body[start:end] for start, end in pairwise([0, *places, len(body)])])
    for slices in ways:
        texts: list[str] = []
        _expect_equal(
            "any slices give the same reply", whole, decode_slices(codec, reply, encoded, slices, texts)
        )
        if stream and isinstance(whole, Reply):
            _expect_equal("the deltas add up to the text of the reply", whole.text, "".join(texts))


def check_cut_replies(codec: Codec, reply: Reply, encoded: HttpReply) -> None:
    """Accept a cut reply only if nothing of it is missing, such as a last line break.

    Counts that come after the end of an answer may be missing, if the reply says so.
    """
    body = b"".join(encoded.frames)
    whole = decode_slices(codec, reply, encoded, [body])
    for cut in range(len(body)):
        decoded = decode_slices(codec, reply, encoded, [body[:cut]])
        if isinstance(decoded, Reply) and isinstance(whole, Reply) and decoded.usage.incomplete:
            decoded = replace(decoded, usage=whole.usage)
        if isinstance(decoded, Reply) and decoded != whole:
            raise AssertionError(f"half a reply is never a reply: cut after {cut} bytes it gave {decoded}")


def check_garbled_bytes(codec: Codec, reply: Reply, encoded: HttpReply) -> None:
    """Feed changed, lost, doubled or random bytes: the result is a reply or a `ProviderError`, nothing
    else."""
    body, random = b"".join(encoded.frames), Random(SEED)
    for number in range(GARBLED_TRIES):
        damaged = random.randbytes(200) if number % 10 == 0 else _damage_bytes(body, random)
        status = 200 if number % 5 else random.choice((204, 302, 400, 429, 500, 503))
        headers = encoded.headers if number % 3 else ()
        decode_slices(codec, reply, HttpReply(status=status, headers=headers, frames=()), [damaged])


def check_deterministic_encoding(codec: Codec, request: Request) -> None:
    first, again = codec.encode(request), codec.encode(request, codec.new_history())
    _expect_equal("encode is deterministic", first, again)
    history = codec.new_history()
    for count in range(len(request.messages) + 1):
        partial = replace(request, messages=request.messages[:count], breakpoints=())
        _expect_equal(
            "the encoded history does not change a request",
            codec.encode(partial),
            codec.encode(partial, history),
        )
    joined = codec.new_history().join_messages(request.messages)
    _expect_equal("an encoded history can be joined again", joined, history.join_messages(request.messages))
    shorter = request.messages[1:]
    _expect_equal(
        "other messages are encoded again",
        codec.new_history().join_messages(shorter),
        history.join_messages(shorter),
    )
    delivered = codec.encode(replace(request, stream=not request.stream))
    _expect_equal("the digest does not depend on the delivery", first.digest, delivered.digest)
    other = codec.encode(replace(request, max_tokens=(request.max_tokens or 1_000) + 1))
    if other.digest == first.digest or not first.digest:
        raise AssertionError("the digest identifies a request: two requests have the same one")


def check_stable_prefix(codec: Codec, request: Request) -> None:
    """Check that each request, up to its last message, is a prefix of the next."""
    history = codec.new_history()
    turns = [
        count
        for count in range(1, len(request.messages) + 1)
        if count == len(request.messages) or request.messages[count].role == "assistant"
    ]
    before = b""
    for turn, count in enumerate(turns):
        messages = request.messages[:count]
        changed = replace(request, messages=messages, breakpoints=(), max_tokens=1_000 + turn)
        body = codec.encode(changed, history).body
        joined, _ = history.join_messages(messages)
        if joined not in body:
            raise AssertionError("the encoded history is part of the body: its bytes are not in it")
        if not body.startswith(before):
            raise AssertionError(
                f"request k+1 begins as request k: the first {len(before)} bytes changed with message {count}"
            )
        before = body[: body.index(joined) + len(joined)]


def check_requests_round_trip(codec: Codec, request: Request, forget: Normalizer) -> None:
    decoded = codec.decode_request(codec.encode(request))
    _expect_equal(
        "decode_request(encode(r)) == r",
        normalize_request(forget(request)),
        normalize_request(forget(decoded)),
    )


def check_failures_round_trip(codec: Codec, server: ServerCodec, failure: Failure) -> None:
    encoded = server.encode_failure(failure)
    decoded = decode_slices(codec, sample_replies(codec.family)[0], encoded, list(encoded.frames))
    if not isinstance(decoded, Failure):
        raise AssertionError(f"a failure is never a reply: {failure} became {decoded}")
    _expect_equal("a failure keeps its kind", failure.kind, decoded.kind)
    _expect_equal("a failure keeps its status", encoded.status, decoded.status)
    _expect_equal("a failure keeps the wait", failure.retry_after_seconds, decoded.retry_after_seconds)
    if failure.message not in decoded.message:
        raise AssertionError(f"a failure keeps its message: {failure.message!r} became {decoded.message!r}")


def decode_slices(
    codec: Codec, reply: Reply, encoded: HttpReply, slices: Sequence[bytes], texts: list[str] | None = None
) -> Reply | Failure:
    """Decode these slices as the answer to a request to the reply's model."""
    headers = {name.lower(): value for name, value in encoded.headers}
    decoder = codec.new_decoder(request_for(reply), encoded.status, headers)
    try:
        for data in slices:
            for delta in decoder.feed(data):
                if texts is not None and isinstance(delta, TextDelta):
                    texts.append(delta.text)
        return decoder.close()
    except ProviderError as error:
        return error.failure
    except Exception as error:
        raise AssertionError(
            f"only ProviderError, whatever the bytes are: {type(error).__name__}: {error}\nfed: {slices!r}"
        ) from error


def _damage_bytes(body: bytes, random: Random) -> bytes:
    data = bytearray(body)
    for _ in range(random.randint(1, 6)):
        at = random.randrange(len(data) + 1)
        match random.randrange(4):
            case 0:
                data[at : at + 1] = random.randbytes(1)
            case 1:
                del data[at : at + random.randint(1, 40)]
            case 2:
                data[at:at] = data[at : at + random.randint(1, 80)]
            case _:
                data[at:at] = random.choice((b"\n\n", b"null", b"{", b'"', b"\\ud83d", b"\xff", b"[" * 3000))
    return bytes(data)


def _expect_equal(law: str, expected: object, found: object) -> None:
    if expected != found:
        raise AssertionError(f"{law}\nexpected: {expected}\n   found: {found}")
