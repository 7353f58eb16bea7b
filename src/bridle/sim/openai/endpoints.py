"""Shared by both OpenAI wires: the rejected field, request ids, service tiers and stream padding.

Chunks of a stream are padded, so that their length does not reveal the text. Clients ignore the padding and
can switch it off.
"""

import re
from collections.abc import Mapping
from hashlib import blake2b

import msgspec
from msgspec.structs import replace

from bridle.ports.codec import HttpReply
from bridle.values.errors import Failure

NOT_FOUND_MESSAGE = "Invalid URL ({method} {path})"
REQUEST_ID_HEADER = "x-request-id"
UNSIMULATED_PATHS = re.compile(
    r"(?:/v1)?/(?:embeddings|files|uploads|batches|images|audio|moderations|fine_tuning|vector_stores|assistants"
    r"|threads|realtime|videos|containers|evals|completions)(?:/.*)?"
)
WRONG_CONTENT_TYPE = Failure(
    kind="invalid",
    message="Unsupported content type: '{given}'. This API method only accepts 'application/json' requests,"
    " but you specified the header 'Content-Type: {given}'. Please try again with a supported content type.",
    status=400,
    code="unsupported_content_type",
)
SIZE_STEP = 16
"""The length of padded chunks is a multiple of this."""


def add_rejected_field(reply: HttpReply, param: str) -> HttpReply:
    """Add the name of the rejected field to a refusal."""
    error = msgspec.json.decode(b"".join(reply.frames), type=dict[str, dict[str, object]])
    error["error"]["param"] = param or None
    return replace(reply, frames=(msgspec.json.encode(error),))


def find_tier(body: Mapping[str, object]) -> str:
    """Return the service tier of a request: the one it names, or the default."""
    named = body.get("service_tier")
    return named if isinstance(named, str) and named != "auto" else "default"


def wants_padding(body: Mapping[str, object]) -> bool:
    options = body.get("stream_options")
    return not isinstance(options, dict) or options.get("include_obfuscation") is not False


def pad_frame(frame: bytes) -> bytes:
    """Pad a chunk of a stream; the padding is derived from the chunk."""
    body = frame.rstrip(b"\r\n")
    filler = blake2b(frame, digest_size=SIZE_STEP).hexdigest()[: SIZE_STEP - len(body) % SIZE_STEP]
    return b'%b,"obfuscation":"%b"}%b' % (body[:-1], filler.encode(), frame[len(body) :])
