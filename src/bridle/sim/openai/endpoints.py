"""What both of this provider's wires have beside their main endpoints: blame, names of exchanges, padding.

Pieces of a stream are padded, so that nobody who only sees how long they are can guess the words.  It is
meant to be ignored; whoever does not want it says so.
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
"""Padded pieces are as long as a multiple of this."""


def add_rejected_field(reply: HttpReply, param: str) -> HttpReply:
    """A refusal that names the field at fault."""
    told = msgspec.json.decode(b"".join(reply.frames), type=dict[str, dict[str, object]])
    told["error"]["param"] = param or None
    return replace(reply, frames=(msgspec.json.encode(told),))


def find_tier(body: Mapping[str, object]) -> str:
    """The tier a request is served on: the one it names, or the usual one."""
    named = body.get("service_tier")
    return named if isinstance(named, str) and named != "auto" else "default"


def wants_padding(body: Mapping[str, object]) -> bool:
    options = body.get("stream_options")
    return not isinstance(options, dict) or options.get("include_obfuscation") is not False


def pad_frame(frame: bytes) -> bytes:
    """A piece of a stream with its padding; what it is made of follows from the piece."""
    body = frame.rstrip(b"\r\n")
    filler = blake2b(frame, digest_size=SIZE_STEP).hexdigest()[: SIZE_STEP - len(body) % SIZE_STEP]
    return b'%b,"obfuscation":"%b"}%b' % (body[:-1], filler.encode(), frame[len(body) :])
