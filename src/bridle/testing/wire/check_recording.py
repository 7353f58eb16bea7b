"""Checks a codec against recorded traffic.

Each recording is checked in three ways, for any wire family:

  - The reply decodes to the same value however its bytes are sliced. An error status gives a failure
    with that status; a recording that was cut gives `cut`.
  - The decoded reply agrees with a deliberately simple reference decoder, which shares no code with
    the codecs (`reference_decoder.py`).
  - The request, decoded and encoded again, still means the same (`request_roundtrip.py`).

Every difference is listed separately, with its reason if there is one.
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
from .request_roundtrip import find_request_differences

__all__ = [
    "RecordingVerdict",
    "TrafficRecord",
    "decode_recording",
    "find_codec",
    "judge_recording",
    "read_recordings",
]

SLICES_DEFAULT = (1, 7, 61, 4096)
BYTEWISE_MAX = 8_192
"""Longer replies are not fed byte by byte, because it takes long and shows nothing more."""
RecordingOutcome = Literal["reply", "failure", "cut", "other", "broken", "foreign"]
"""Result of decoding a recording.

`other`: not an exchange that any codec handles, such as counting tokens; `broken`: the recording cannot be
read; `foreign`: there is no codec for the wire family.
"""
_REFUSED_STATUSES = (400, 422)
_PROVIDER_REFUSED = "the provider refused it as it was"
_READ_ERRORS = (KeyError, TypeError, AttributeError, ValueError, IndexError, RecursionError)


class RecordingVerdict(Value, kw_only=True):
    """The result of checking one recording; no differences is best."""

    id: str
    outcome: RecordingOutcome
    reply: tuple[WireDifference, ...] = ()
    """Differences found in the reply."""
    request: tuple[WireDifference, ...] = ()
    """Places where the encoded request does not mean the same as the recorded one."""
    was_compared: bool = False
    """True if the reply was compared with the reference decoder."""

    @property
    def reason(self) -> str:
        """Reasons why the request was changed; empty if a part of it has none."""
        reasons = [found.reason for found in self.request]
        return "; ".join(dict.fromkeys(reasons)) if all(reasons) else ""


def find_codec(recording: TrafficRecord) -> Codec | None:
    """Return the codec of an exchange: its family's, or that of the family whose path it was sent to.

    An exchange with an unknown path stays with its family; one of an unknown family has no codec.
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
    changes: tuple[WireDifference, ...] = ()
    if recording.request is not None:
        try:
            request = codec.decode_request(recording.request)
            changes = tuple(find_request_differences(codec, recording.request, codec.encode(request)))
        except ProviderError as error:
            if error.failure.kind == "not_found":
                return RecordingVerdict(id=recording.id, outcome="other")
            # The provider refused it too, so there is nothing to encode again.
            if recording.status < 300:
                changes = (WireDifference(description=f"$: the request cannot be read: {error}"),)
        except MisuseError as error:
            changes = (WireDifference(description=f"$: the request cannot be written again: {error}"),)
    if recording.status in _REFUSED_STATUSES:
        changes = tuple(replace(each, reason=each.reason or _PROVIDER_REFUSED) for each in changes)
    whole = decode_recording(codec, request, recording)
    slicing_problems = [
        WireDifference(description=f"fed {size} bytes at a time it gives something else")
        for size in slices
        if size > 1 or len(recording.body) <= BYTEWISE_MAX
        if decode_recording(codec, request, recording, size) != whole
    ]
    if isinstance(whole, Failure):
        answer, missed = _judge_failure(codec.family, recording, whole)
        return RecordingVerdict(
            id=recording.id,
            outcome=answer,
            reply=(*slicing_problems, *missed),
            request=changes,
        )
    compared, disagreements = _compare_with_reference(codec.family, recording, whole)
    found = (*slicing_problems, *disagreements)
    return RecordingVerdict(
        id=recording.id,
        outcome="reply",
        reply=found,
        request=changes,
        was_compared=compared,
    )


def decode_recording(
    codec: Codec, request: Request, recording: TrafficRecord, size: int | None = None
) -> Reply | Failure:
    """Decode a recorded reply, fed `size` bytes at a time."""
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
    # If the recorder found no part of a reply either, there is nothing to decode.
    was_missed = failure.kind in ("cut", "garbled") and bool(recording.tags or recording.stop)
    was_missed = was_missed or _has_reference_reading(family, recording)
    if (was_missed and recording.status < 300) or failure.status != recording.status:
        return "failure", [WireDifference(description=f"HTTP {recording.status} became {failure}")]
    return "failure", []


def _compare_with_reference(
    family: str, recording: TrafficRecord, reply: Reply
) -> tuple[bool, list[WireDifference]]:
    if recording.status >= 300:
        return False, [WireDifference(description=f"HTTP {recording.status} became a reply")]
    try:
        reference = read_reply(family, recording.body)
    except _READ_ERRORS as error:
        return False, [
            WireDifference(
                description=f"the reference decoder cannot read the reply: {type(error).__name__}: {error}"
            )
        ]
    if reference is None:
        return False, [
            WireDifference(description="the reference decoder finds no whole reply in these bytes")
        ]
    return True, list(find_disagreements(reference, reply))


def _has_reference_reading(family: str, recording: TrafficRecord) -> bool:
    try:
        return recording.status < 300 and read_reply(family, recording.body) is not None
    except _READ_ERRORS:
        return False


def _can_read(codec: Codec, recording: TrafficRecord, *, whole: bool = False) -> bool:
    """True if the request's path belongs to this codec; with `whole`, its body must be readable too."""
    if recording.request is None:
        return False
    try:
        codec.decode_request(recording.request)
    except ProviderError as error:
        return not whole and error.failure.kind != "not_found"
    except _READ_ERRORS:
        return not whole
    return True
