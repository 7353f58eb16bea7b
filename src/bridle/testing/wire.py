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
from pathlib import Path
from pkgutil import iter_modules
from typing import Literal

from msgspec.structs import replace

from .. import providers
from ..ports.codec import Codec
from ..providers import load
from ..values.errors import Failure, MisuseError, ProviderError
from ..values.message import Reply
from ..values.model import Endpoint, Model
from ..values.request import Request
from ..values.value import Value
from .agreement import Difference, disagreements
from .plainly import plainly
from .restating import Meaningful, request_differences, restated
from .traffic import CUT_TAG, Recording, recordings

__all__ = [
    "Meaningful",
    "Recording",
    "Verdict",
    "decoded",
    "owner",
    "recordings",
    "request_differences",
    "verdict",
]

SLICES_DEFAULT = (1, 7, 61, 4096)
BYTEWISE_MAX = 8_192
"""Longer replies are not fed byte by byte: it shows nothing more, and takes long."""
Answer = Literal["reply", "failure", "cut", "other", "broken", "foreign"]
"""`other`: not an exchange of any codec's kind, such as counting tokens; `broken`: the recording cannot be
read; `foreign`: of a wire family there is no codec for."""
_REFUSED = (400, 422)
_REFUSED_AS_IT_WAS = "the provider refused it as it was"
_STUMBLES = (KeyError, TypeError, AttributeError, ValueError, IndexError, RecursionError)


class Verdict(Value):
    """What became of one recording; nothing is best."""

    id: str
    answer: Answer
    reply: tuple[Difference, ...] = ()
    """What is wrong with the reply."""
    request: tuple[Difference, ...] = ()
    """Where the request, written again, does not mean the same."""
    compared: bool = False
    """Whether the reply was compared with a second reading of it."""

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong with the reply and cannot be explained."""
        return tuple(found.what for found in self.reply if not found.reason)

    @property
    def differences(self) -> tuple[str, ...]:
        return tuple(found.what for found in self.request)

    @property
    def reason(self) -> str:
        """Why the request was changed; empty when some of it has no reason."""
        reasons = [found.reason for found in self.request]
        return "; ".join(dict.fromkeys(reasons)) if all(reasons) else ""


def owner(recording: Recording) -> Codec | None:
    """The codec an exchange belongs to: its family's, or that of the family whose path it was sent to.

    A path nobody knows leaves it with its family, and one of no known family with nobody.
    """
    try:
        own = load(recording.family)
    except MisuseError:
        own = None
    if recording.request is None or (own is not None and _knows(own, recording)):
        return own
    names = (module.name for module in iter_modules(map(str, map(Path, providers.__path__))))
    others = (load(name) for name in sorted(names) if not name.startswith("_") and _is_family(name))
    return next((other for other in others if _knows(other, recording, whole=True)), own)


def verdict(codec: Codec, recording: Recording, slices: Sequence[int] = SLICES_DEFAULT) -> Verdict:
    if recording.broken:
        return Verdict(id=recording.id, answer="broken")
    request = Request(
        model=Model(id=recording.model, endpoint=Endpoint(name=codec.family, family=codec.family))
    )
    changed: tuple[Difference, ...] = ()
    if recording.request is not None:
        try:
            request = codec.read(recording.request)
            changed = tuple(restated(codec, recording.request, codec.encode(request)))
        except ProviderError as error:
            if error.failure.kind == "not_found":
                return Verdict(id=recording.id, answer="other")
            # The provider refused it as well: then there is nothing to write again.
            if recording.status < 300:
                changed = (Difference(what=f"$: the request cannot be read: {error}"),)
        except MisuseError as error:
            changed = (Difference(what=f"$: the request cannot be written again: {error}"),)
    if recording.status in _REFUSED:
        changed = tuple(replace(each, reason=each.reason or _REFUSED_AS_IT_WAS) for each in changed)
    whole = decoded(codec, request, recording)
    wrong = [
        Difference(what=f"fed {size} bytes at a time it gives something else")
        for size in slices
        if size > 1 or len(recording.body) <= BYTEWISE_MAX
        if decoded(codec, request, recording, size) != whole
    ]
    if isinstance(whole, Failure):
        answer, missed = _failed(codec.family, recording, whole)
        return Verdict(id=recording.id, answer=answer, reply=(*wrong, *missed), request=changed)
    compared, odd = _second_opinion(codec.family, recording, whole)
    found = (*wrong, *odd)
    return Verdict(id=recording.id, answer="reply", reply=found, request=changed, compared=compared)


def decoded(codec: Codec, request: Request, recording: Recording, size: int | None = None) -> Reply | Failure:
    """What the codec makes of a recorded reply, fed `size` bytes at a time."""
    decoder = codec.decoder(request, recording.status, recording.headers)
    body, step = recording.body, size or len(recording.body) or 1
    try:
        for at in range(0, len(body), step):
            decoder.feed(body[at : at + step])
        return decoder.close()
    except ProviderError as error:
        return error.failure


def _failed(
    family: str, recording: Recording, failure: Failure
) -> tuple[Literal["failure", "cut"], list[Difference]]:
    if CUT_TAG in recording.tags and failure.kind == "cut":
        return "cut", []
    # Where the recorder found nothing of a reply either, there is none to be read.
    unread = failure.kind in ("cut", "garbled") and bool(recording.tags or recording.stop)
    unread = unread or _is_told(family, recording)
    if (unread and recording.status < 300) or failure.status != recording.status:
        return "failure", [Difference(what=f"HTTP {recording.status} became {failure}")]
    return "failure", []


def _second_opinion(family: str, recording: Recording, reply: Reply) -> tuple[bool, list[Difference]]:
    if recording.status >= 300:
        return False, [Difference(what=f"HTTP {recording.status} became a reply")]
    try:
        told = plainly(family, recording.body)
    except _STUMBLES as error:
        return False, [Difference(what=f"nobody else can read the reply: {type(error).__name__}: {error}")]
    if told is None:
        return False, [Difference(what="nobody else finds a whole reply in these bytes")]
    return True, list(disagreements(told, reply))


def _is_told(family: str, recording: Recording) -> bool:
    try:
        return recording.status < 300 and plainly(family, recording.body) is not None
    except _STUMBLES:
        return False


def _is_family(name: str) -> bool:
    try:
        return isinstance(load(name), Meaningful)
    except MisuseError:
        return False


def _knows(codec: Codec, recording: Recording, *, whole: bool = False) -> bool:
    """Whether the request's path is one of this codec's; `whole`: and its body too."""
    if recording.request is None:
        return False
    try:
        codec.read(recording.request)
    except ProviderError as error:
        return not whole and error.failure.kind != "not_found"
    except _STUMBLES:
        return not whole
    return True
