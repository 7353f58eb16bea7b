"""Finds media that a model cannot accept, and replaces it with text.

A provider rejects the whole conversation because of one unacceptable image, and the image would stay in the
conversation. So abilities are checked before sending. `MEDIA_RULES` lists the reasons in the order they are
tried.

Rule 1: omitted media is replaced by text that says what it was and why it is missing. Rule 2: no wire family
decides this for itself; the endpoint's abilities do. Rule 3: a file stored at one provider means nothing to
another.
"""

from collections.abc import Callable, Iterator

from bridle.values.base import Value
from bridle.values.events import ViewChange
from bridle.values.media import explain_unsendable
from bridle.values.message import Media, Message, ToolResult
from bridle.values.model import Model

_KIND_NAMES = {"image": "picture"}


class UnsupportedPart(Value, kw_only=True):
    change: ViewChange
    why: str


def find_unsupported_media(message: Message, model: Model) -> tuple[UnsupportedPart, ...]:
    """Media in this message that the model cannot accept, as changes that omit it."""
    # Media from this endpoint was accepted or created by it: its types need no check.
    same_origin = message.origin is not None and message.origin.endpoint == model.endpoint.endpoint_id
    found = []
    for at, inner, media in _list_media(message):
        for why, applies in MEDIA_RULES:
            if (same_origin and applies in _SKIPPED_AT_ORIGIN) or not (
                detail := applies(media, message, model)
            ):
                continue
            label = " ".join(filter(None, (_KIND_NAMES.get(media.kind, media.kind), media.name)))
            text = f"[{label} left out: {detail}]"
            found.append(
                UnsupportedPart(
                    change=ViewChange(message=message.id, part=at, inner=inner, text=text), why=why
                )
            )
            break
    return tuple(found)


def _list_media(message: Message) -> Iterator[tuple[int, int, Media]]:
    for at, part in enumerate(message.parts):
        inside = enumerate(part.parts) if isinstance(part, ToolResult) else ((-1, part),)
        for inner, media in inside:
            if isinstance(media, Media):
                yield at, inner, media


def _explain_foreign_file(media: Media, message: Message, model: Model) -> str:
    origin = message.origin
    holder = media.endpoint_id or (origin.endpoint if origin else "")
    foreign = media.file_id and holder and holder != model.endpoint.endpoint_id
    return f"the file is held by {holder}, where this model cannot read it" if foreign else ""


def _explain_unsendable_media(media: Media, message: Message, model: Model) -> str:
    """Reason why the data is invalid: created before validation existed, or read from a wire."""
    return explain_unsendable(media.kind, media.media_type, media.data, media.url, media.file_id)


def _explain_no_pictures(media: Media, message: Message, model: Model) -> str:
    blind = media.kind == "image" and not model.abilities.images
    return "this model takes no pictures" if blind else ""


def _explain_no_documents(media: Media, message: Message, model: Model) -> str:
    unread = media.kind == "document" and not model.abilities.documents
    return "this model takes no documents" if unread else ""


def _explain_no_videos(media: Media, message: Message, model: Model) -> str:
    unseen = media.kind == "video" and not model.abilities.videos
    return "this model takes no videos" if unseen else ""


def _explain_no_audio(media: Media, message: Message, model: Model) -> str:
    unheard = media.kind == "audio" and not model.abilities.audio
    return "this model takes no audio" if unheard else ""


def _explain_type(media: Media, message: Message, model: Model) -> str:
    abilities = model.abilities
    types = {"image": abilities.image_types, "document": abilities.document_types}.get(media.kind, ())
    media_type = media.media_type.partition(";")[0].strip().lower()
    if not media_type or not types or any(_matches_type(media_type, each) for each in types):
        return ""
    return f"this model takes no {media_type}"


def _explain_size(media: Media, message: Message, model: Model) -> str:
    limit, size = model.abilities.image_bytes_max, len(media.data) * 3 // 4
    if media.kind != "image" or not limit or size <= limit:
        return ""
    return f"it has {size:,} bytes, and at most {limit:,} are accepted"


def _matches_type(media_type: str, pattern: str) -> bool:
    return media_type.startswith(pattern[:-1]) if pattern.endswith("*") else media_type == pattern


_SKIPPED_AT_ORIGIN = (_explain_type, _explain_unsendable_media)
MediaRule = Callable[[Media, Message, Model], str]

MEDIA_RULES: tuple[tuple[str, MediaRule], ...] = (
    ("a file is held by another provider", _explain_foreign_file),
    ("this model takes no pictures", _explain_no_pictures),
    ("this model takes no documents", _explain_no_documents),
    ("this model takes no videos", _explain_no_videos),
    ("this model takes no audio", _explain_no_audio),
    ("a picture or document is of a type this model does not take", _explain_type),
    ("a picture is larger than this model accepts", _explain_size),
    ("a picture or file has no data that could be sent", _explain_unsendable_media),
)
