"""What a refusal is about: providers name the item they stumble over, each in its own spelling.

    messages.3.content.1.image.source.base64: …       messages[3].content[1]: …
    input[4].content[0].image_url …                    contents[2].parts[0].inline_data …

The numbers along such a path are all that is read.  Some refusals of pictures and files name no
place at all; they are known by their words, and what they are about must be found by its age.
"""

import re

from ..values.value import Value

_STEPS_MAX = 3
_NUMBER = re.compile(r"(?:\.|\[)(\d{1,6})\]?")
_PATH = r"(?<!\w){listed}((?:\.\w+|\[\d+\])+)"
MEDIA = re.compile(
    r"could not process (?:the )?(?:image|pdf|document|file)"
    r"|(?:image|picture|pdf|document|video|audio|file)[^.]{0,80}"
    r"(?:not valid|invalid|unsupported|not supported|corrupt|cannot be (?:read|decoded)"
    r"|too (?:large|many)|exceed)"
    r"|(?:invalid|unsupported|failed to (?:decode|download|process|load))[^.]{0,60}"
    r"(?:image|pdf|document|media|file|base64)"
    r"|unable to (?:process|download|decode)[^.]{0,60}(?:image|input|media|file)",
    re.IGNORECASE,
)


class Complaint(Value):
    place: tuple[int, ...] = ()
    """Which item of the conversation as it was sent, which piece of it, and so on inwards."""
    about_media: bool = False


def complaint_in(message: str, listed: str) -> Complaint | None:
    """What a refusal says it is about; `listed` is the wire's word for the conversation."""
    about_media = MEDIA.search(message) is not None
    path = re.search(_PATH.format(listed=re.escape(listed)), message)
    numbers = tuple(int(found) for found in _NUMBER.findall(path.group(1))) if path else ()
    if not numbers and not about_media:
        return None
    return Complaint(place=numbers[:_STEPS_MAX], about_media=about_media)
