"""Does a codec obey the laws?  Write one, run this, and it fits.

    check_codec(CODEC)                      # AssertionError says which law was broken, and by what

Every law has a function below.  The samples (`codec_samples`) say only what every family can say; give
`replies` and `requests` of your own to have them put to the same laws.

`read(encode(r)) == r` holds up to what no wire carries, which is listed in `LOST` and left out by
`essence`.  A family that loses more says so by a function of its own, given as `forget`.

Nothing here knows a family, and nothing depends on how fast a codec is.
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

NOT_CARRIED = (
    "what a model can do, costs and where it answers: only its name is sent",
    "ids, parents, times, origins, counts and stops of messages; ids of calls are given anew",
    "blank texts, messages that say nothing, and which of several neighbouring messages said what",
    "how a tool may be run: effect, deadline, what to do in doubt",
    "which kind of error a result is; name and description of an output shape",
    "the spelling of JSON that keeps its value",
)
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
    """Raises `AssertionError` naming the first law the codec breaks.

    `server` encodes what the codec must decode; without it, the simulated family of the codec's name does.
    """
    server = server or find_family(codec.family)
    told = [*sample_replies(codec.family), *replies]
    asked = [*sample_requests(codec.family), *requests]
    for reply in told:
        for stream in (False, True):
            spoken = server.encode_reply(reply, stream=stream)
            check_replies_round_trip(codec, reply, spoken)
            check_slicing(codec, reply, spoken, stream=stream)
            check_cut_replies(codec, reply, spoken)
            check_garbled_bytes(codec, reply, spoken)
    for request in asked:
        check_deterministic_encoding(codec, request)
        check_stable_prefix(codec, request)
        check_requests_round_trip(codec, request, forget or (lambda same: same))
    for failure in SAMPLE_FAILURES:
        check_failures_round_trip(codec, server, failure)


def check_replies_round_trip(codec: Codec, reply: Reply, spoken: HttpReply) -> None:
    heard = decode_slices(codec, reply, spoken, list(spoken.frames))
    if not isinstance(heard, Reply):
        raise AssertionError(f"decode(speak(x)) == x: it failed with {heard}\nsaid: {reply}")
    expected = replace(
        reply,
        id=reply.id or heard.id,
        stop_detail=reply.stop_detail or heard.stop_detail,
    )
    _expect_equal("decode(speak(x)) == x", expected, heard)


def check_slicing(codec: Codec, reply: Reply, spoken: HttpReply, *, stream: bool) -> None:
    body = b"".join(spoken.frames)
    whole = decode_slices(codec, reply, spoken, [body])
    random = Random(SEED)
    ways = [[body[at : at + size] for at in range(0, len(body), size)] for size in SIZES]
    for _ in range(5):
        places = sorted(random.sample(range(len(body)), min(12, len(body))))
        ways.append([body[start:end] for start, end in pairwise([0, *places, len(body)])])
    for slices in ways:
        said: list[str] = []
        _expect_equal(
            "any slices give the same reply", whole, decode_slices(codec, reply, spoken, slices, said)
        )
        if stream and isinstance(whole, Reply):
            _expect_equal("the deltas say what the reply says", whole.text, "".join(said))


def check_cut_replies(codec: Codec, reply: Reply, spoken: HttpReply) -> None:
    """A cut reply may count only when nothing of it is missing, such as a last line break.

    Counts that come after the end of an answer may be missing, if the reply says that they are.
    """
    body = b"".join(spoken.frames)
    whole = decode_slices(codec, reply, spoken, [body])
    for cut in range(len(body)):
        heard = decode_slices(codec, reply, spoken, [body[:cut]])
        if isinstance(heard, Reply) and isinstance(whole, Reply) and heard.usage.incomplete:
            heard = replace(heard, usage=whole.usage)
        if isinstance(heard, Reply) and heard != whole:
            raise AssertionError(f"half a reply is never a reply: cut after {cut} bytes it gave {heard}")


def check_garbled_bytes(codec: Codec, reply: Reply, spoken: HttpReply) -> None:
    """Bytes changed, lost, doubled or made up: a reply or a `ProviderError`, never anything else."""
    body, random = b"".join(spoken.frames), Random(SEED)
    for number in range(GARBLED_TRIES):
        damaged = random.randbytes(200) if number % 10 == 0 else _damage_bytes(body, random)
        status = 200 if number % 5 else random.choice((204, 302, 400, 429, 500, 503))
        headers = spoken.headers if number % 3 else ()
        decode_slices(codec, reply, HttpReply(status=status, headers=headers, frames=()), [damaged])


def check_deterministic_encoding(codec: Codec, request: Request) -> None:
    first, again = codec.encode(request), codec.encode(request, codec.new_history())
    _expect_equal("encode is deterministic", first, again)
    kept = codec.new_history()
    for count in range(len(request.messages) + 1):
        grown = replace(request, messages=request.messages[:count], breakpoints=())
        _expect_equal("kept messages are the messages", codec.encode(grown), codec.encode(grown, kept))
    joined = codec.new_history().join_messages(request.messages)
    _expect_equal("a kept line can be joined again", joined, kept.join_messages(request.messages))
    shorter = request.messages[1:]
    _expect_equal(
        "another line is written anew",
        codec.new_history().join_messages(shorter),
        kept.join_messages(shorter),
    )
    delivered = codec.encode(replace(request, stream=not request.stream))
    _expect_equal(
        "the digest is of what is asked, not of how it is delivered", first.digest, delivered.digest
    )
    other = codec.encode(replace(request, max_tokens=(request.max_tokens or 1_000) + 1))
    if other.digest == first.digest or not first.digest:
        raise AssertionError("the digest tells requests apart: two of them have the same")


def check_stable_prefix(codec: Codec, request: Request) -> None:
    """Up to its last message, each request is the beginning of the next, whatever else changes."""
    kept = codec.new_history()
    turns = [
        count
        for count in range(1, len(request.messages) + 1)
        if count == len(request.messages) or request.messages[count].role == "assistant"
    ]
    before = b""
    for turn, count in enumerate(turns):
        messages = request.messages[:count]
        changed = replace(request, messages=messages, breakpoints=(), max_tokens=1_000 + turn)
        body = codec.encode(changed, kept).body
        joined, _ = kept.join_messages(messages)
        if joined not in body:
            raise AssertionError("the kept bytes are the bytes that are sent: they are not in the body")
        if not body.startswith(before):
            raise AssertionError(
                f"request k+1 begins as request k: the first {len(before)} bytes changed with message {count}"
            )
        before = body[: body.index(joined) + len(joined)]


def check_requests_round_trip(codec: Codec, request: Request, forget: Normalizer) -> None:
    heard = codec.decode_request(codec.encode(request))
    _expect_equal(
        "read(encode(r)) == r", normalize_request(forget(request)), normalize_request(forget(heard))
    )


def check_failures_round_trip(codec: Codec, server: ServerCodec, failure: Failure) -> None:
    spoken = server.encode_failure(failure)
    heard = decode_slices(codec, sample_replies(codec.family)[0], spoken, list(spoken.frames))
    if not isinstance(heard, Failure):
        raise AssertionError(f"a failure is never a reply: {failure} became {heard}")
    _expect_equal("a failure keeps its kind", failure.kind, heard.kind)
    _expect_equal("a failure keeps its status", spoken.status, heard.status)
    _expect_equal("a failure keeps the wait", failure.retry_after_seconds, heard.retry_after_seconds)
    if failure.message not in heard.message:
        raise AssertionError(f"a failure keeps its words: {failure.message!r} became {heard.message!r}")


def decode_slices(
    codec: Codec, reply: Reply, spoken: HttpReply, slices: Sequence[bytes], said: list[str] | None = None
) -> Reply | Failure:
    """What the codec makes of these slices, as the answer to a question asked of the reply's model."""
    headers = {name.lower(): value for name, value in spoken.headers}
    decoder = codec.new_decoder(request_for(reply), spoken.status, headers)
    try:
        for data in slices:
            for delta in decoder.feed(data):
                if said is not None and isinstance(delta, TextDelta):
                    said.append(delta.text)
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
