"""Recorded traffic, put to a codec.

Three questions are asked of each recording, for any wire family:

  - Does the reply decode, and to the same value however its bytes are sliced?  An error status must
    give a failure with that status; a recording that was cut must give `cut`.
  - Does the decoded reply say what somebody else reads in the same bytes?  That reading is deliberately
    simple and shares nothing with the codecs (`plainly.py`).
  - Does the request, read and written again, still mean the same (`restating.py`)?

Every difference is listed by itself, with its reason where there is one.
"""

from collections.abc import Sequence
from typing import Literal

from msgspec.structs import replace

from bridle.ports.codec import Codec
from bridle.providers import load_codec
from bridle.values.base import Value
from bridle.values.errors import Failure, MisuseError, ProviderError
from bridle.values.message import Reply
from bridle.values.model import Endpoint, Model
from bridle.values.request import Request

from .canonical_requests import CANONICAL_FORMS
from .recorded_traffic import CUT_TAG, TrafficRecord, read_recordings
from .reference_replies import read_reply
from .reply_agreement import WireDifference, find_disagreements
from .request_roundtrip import find_request_differences, request_differences

__all__ = [
    "RecordingVerdict",
    "TrafficRecord",
    "decode_recording",
    "find_codec",
    "judge_recording",
    "read_recordings",
    "request_differences",
]

SLICES_DEFAULT = (1, 7, 61, 4096)
BYTEWISE_MAX = 8_192
"""Longer replies are not fed byte by byte: it shows nothing more, and takes long."""
RecordingOutcome = Literal["reply", "failure", "cut", "other", "broken", "foreign"]
"""`other`: not an exchange of any codec's kind, such as counting tokens; `broken`: the recording cannot be
read; `foreign`: of a wire family there is no codec for."""
_REFUSED_STATUSES = (400, 422)
_PROVIDER_REFUSED = "the provider refused it as it was"
_READ_ERRORS = (KeyError, TypeError, AttributeError, ValueError, IndexError, RecursionError)


class RecordingVerdict(Value):
    """What became of one recording; nothing is best."""

    id: str
    outcome: RecordingOutcome
    reply: tuple[WireDifference, ...] = ()
    """What is wrong with the reply."""
    request: tuple[WireDifference, ...] = ()
    """Where the request, written again, does not mean the same."""
    was_compared: bool = False
    """Whether the reply was compared with a second reading of it."""

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong with the reply and cannot be explained."""
        return tuple(found.description for found in self.reply if not found.reason)

    @property
    def differences(self) -> tuple[str, ...]:
        return tuple(found.description for found in self.request)

    @property
    def reason(self) -> str:
        """Why the request was changed; empty when some of it has no reason."""
        reasons = [found.reason for found in self.request]
        return "; ".join(dict.fromkeys(reasons)) if all(reasons) else ""


def find_codec(recording: TrafficRecord) -> Codec | None:
    """The codec an exchange belongs to: its family's, or that of the family whose path it was sent to.

    A path nobody knows leaves it with its family, and one of no known family with nobody.
    """
    try:
        own = load_codec(recording.family)
    except MisuseError:
        own = None
    if recording.request is None or (own is not None and _can_read(own, recording)):
        return own
    others = (load_codec(name) for name in CANONICAL_FORMS)
    return next((other for other in others if _can_read(other, recording, whole=True)), own)


def judge_recording(
    codec: Codec, recording: TrafficRecord, slices: Sequence[int] = SLICES_DEFAULT
) -> RecordingVerdict:
    if recording.unreadable_reason:
        return RecordingVerdict(id=recording.id, outcome="broken")
    request = Request(
        model=Model(id=recording.model, endpoint=Endpoint(name=codec.family, family=codec.family))
    )
    changed: tuple[WireDifference, ...] = ()
    if recording.request is not None:
        try:
            request = codec.decode_request(recording.request)
            changed = tuple(find_request_differences(codec, recording.request, codec.encode(request)))
        except ProviderError as error:
            if error.failure.kind == "not_found":
                return RecordingVerdict(id=recording.id, outcome="other")
            # The provider refused it as well: then there is nothing to write again.
            if recording.status < 300:
                changed = (WireDifference(description=f"$: the request cannot be read: {error}"),)
        except MisuseError as error:
            changed = (WireDifference(description=f"$: the request cannot be written again: {error}"),)
    if recording.status in _REFUSED_STATUSES:
        changed = tuple(replace(each, reason=each.reason or _PROVIDER_REFUSED) for each in changed)
    whole = decode_recording(codec, request, recording)
    wrong = [
        WireDifference(description=f"fed {size} bytes at a time it gives something else")
        for size in slices
        if size > 1 or len(recording.body) <= BYTEWISE_MAX
        if decode_recording(codec, request, recording, size) != whole
    ]
    if isinstance(whole, Failure):
        answer, missed = _judge_failure(codec.family, recording, whole)
        return RecordingVerdict(id=recording.id, outcome=answer, reply=(*wrong, *missed), request=changed)
    compared, odd = _compare_with_reference(codec.family, recording, whole)
    found = (*wrong, *odd)
    return RecordingVerdict(
        id=recording.id, outcome="reply", reply=found, request=changed, was_compared=compared
    )


def decode_recording(
    codec: Codec, request: Request, recording: TrafficRecord, size: int | None = None
) -> Reply | Failure:
    """What the codec makes of a recorded reply, fed `size` bytes at a time."""
    decoder = codec.new_decoder(request, recording.status, recording.headers)
    body, step = recording.body, size or len(recording.body) or 1
    try:
        for at in range(0, len(body), step):
            decoder.feed(body[at : at + step])
        return decoder.close()
    except ProviderError as error:
        return error.failure


def _judge_failure(
    family: str, recording: TrafficRecord, failure: Failure
) -> tuple[Literal["failure", "cut"], list[WireDifference]]:
    if CUT_TAG in recording.tags and failure.kind == "cut":
        return "cut", []
    # Where the recorder found nothing of a reply either, there is none to be read.
    unread = failure.kind in ("cut", "garbled") and bool(recording.tags or recording.stop)
    unread = unread or _has_reference_reading(family, recording)
    if (unread and recording.status < 300) or failure.status != recording.status:
        return "failure", [WireDifference(description=f"HTTP {recording.status} became {failure}")]
    return "failure", []


def _compare_with_reference(
    family: str, recording: TrafficRecord, reply: Reply
) -> tuple[bool, list[WireDifference]]:
    if recording.status >= 300:
        return False, [WireDifference(description=f"HTTP {recording.status} became a reply")]
    try:
        told = read_reply(family, recording.body)
    except _READ_ERRORS as error:
        return False, [
            WireDifference(description=f"nobody else can read the reply: {type(error).__name__}: {error}")
        ]
    if told is None:
        return False, [WireDifference(description="nobody else finds a whole reply in these bytes")]
    return True, list(find_disagreements(told, reply))


def _has_reference_reading(family: str, recording: TrafficRecord) -> bool:
    try:
        return recording.status < 300 and read_reply(family, recording.body) is not None
    except _READ_ERRORS:
        return False


def _can_read(codec: Codec, recording: TrafficRecord, *, whole: bool = False) -> bool:
    """Whether the request's path is one of this codec's; `whole`: and its body too."""
    if recording.request is None:
        return False
    try:
        codec.decode_request(recording.request)
    except ProviderError as error:
        return not whole and error.failure.kind != "not_found"
    except _READ_ERRORS:
        return not whole
    return True
