"""Removal of credentials from texts and bytes that are kept or shown.

A credential is the value of a header, of a JSON member of a header or of a query parameter whose name
says so, or a word that only a machine makes.  It is found however it is spelled: as it is, with
the escapes of JSON, or percent-encoded.

A short one (under `LONG_CHARACTERS`) is removed where it stands as a word of its own: inside other
words the same letters mean something else.  One that is a plain word, such as the `none` that local servers
are given, is removed from messages of errors only.
"""

import json
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

LONG_CHARACTERS = 8
SHORT_CHARACTERS_MIN = 3
"""What is shorter is no credential but a letter that stands everywhere."""

_WORD = re.compile(r"[^\s,;=\"']{8,}=*")
"""What of a header could be a key, a token or a signature."""
_NAME = re.compile(
    r"(?i).*(?:auth(?!or$)|api.?key|\bkey|[-_]key|token|secret|cookie|credential|password|signature|jwt).*"
)
"""Names of headers and of JSON members whose values are credentials."""
_SHORT_NAME = re.compile(r"(?i).*(?:authorization|key|secret|password|token)")
"""Names whose whole value is a credential however short it is."""
_PARAMETER = re.compile(
    r"(?i).*(?:auth(?!or$)|key|token(?!s)|secret|credential|password|sig(?:nature)?$|jwt).*"
)
"""Names of query parameters whose values are credentials."""
_SCHEME = re.compile(r"\s*[A-Za-z][\w-]*\s+(?=\S)")
"""The word before the credential in an Authorization header."""
_SIGNED = re.compile(r"AWS4-\S+ Credential=(?P<key>[^/,\s]+)[^,]*,.*Signature=(?P<signature>\w+)")
"""A SigV4 proof; the rest of it is the date, the region and names of headers, which are no secret."""
_RANDOM = re.compile(r"(?=[A-Za-z0-9]*\d)(?=[A-Za-z0-9]*[A-Za-z])[A-Za-z0-9]{16,}")
"""Part of a word that only a machine makes: long, with letters and digits."""
_QUERY_PART = re.compile(r"(?<=[?&;])([^=&;#]+)=([^&;#]*)")
_PERCENT = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_HALF_SPELLED = re.compile(r"\\{1,4}(?:u[0-9A-Fa-f]{0,3})?|%[0-9A-Fa-f]?")
"""An escape whose end is missing."""
_ESCAPES = ("\\u00", "\\/", "%")


class Redactor:
    """Replaces the given secrets by a mark."""

    def __init__(self, secrets: Iterable[str], mark: str) -> None:
        self._secrets = sorted({each for each in secrets if len(each) >= SHORT_CHARACTERS_MIN}, key=len)[::-1]
        self._mark = mark
        self._begins = {secret[0] for secret in self._secrets} | set("\\%")
        self._signs = (*self._secrets, *_ESCAPES)
        """Where none of these is in a text, nothing in it is replaced."""
        self._pattern: re.Pattern[str] | None = None

    def redact_text(self, text: str) -> str:
        if not self._secrets:
            return text
        for sign in self._signs:
            if sign in text:
                break
        else:
            return text
        if self._pattern is None:
            self._pattern = _compile_secrets(tuple(self._secrets))
        return self._pattern.sub(self._mark, text)

    def __bool__(self) -> bool:
        return bool(self._secrets)

    def redact_span(self, text: str, start: int, end: int) -> str:
        """A part of a text without the secrets in it; what stands around it decides what is a word."""
        if self._pattern is None:
            self._pattern = _compile_secrets(tuple(self._secrets))
        pieces, after = [], start
        for found in self._pattern.finditer(text, start):
            if found.end() <= end:
                pieces += [text[after : found.start()], self._mark]
                after = found.end()
        return "".join([*pieces, text[after:end]])

    def find_open_end(self, text: str) -> int:
        """The place from which the end of a text may be the beginning of a secret; its length if none is.

        What stands before that place is redacted for good, whatever follows the text.
        """
        if not self._secrets:
            return len(text)
        if self._pattern is None:
            self._pattern = _compile_secrets(tuple(self._secrets))
        inside = 0
        """End of the last whole secret: what overlaps it is no secret of its own."""
        for at, letter in enumerate(text):
            if at >= inside and letter in self._begins:
                if any(_is_open(secret, text, at) for secret in self._secrets):
                    return at
                whole = self._pattern.match(text, at)
                inside = whole.end() if whole else inside
        return len(text)

    def redact_bytes(self, data: bytes) -> bytes:
        # One character a byte: whatever is no text comes out as it was.
        spelled = (each.encode("utf-8", "replace").decode("latin-1") for each in self._secrets)
        wide = Redactor(spelled, self._mark)
        return wide.redact_text(data.decode("latin-1")).encode("latin-1")


def find_header_secrets(name: str, value: str) -> Iterator[str]:
    """The credentials in one header, or in one member of a header that is JSON."""
    given = _parse_object(value)
    if given is not None:
        for inner, held in given.items():
            yield from find_header_secrets(inner, held if isinstance(held, str) else json.dumps(held))
        return
    if not _NAME.fullmatch(name):
        yield from (word for word in _WORD.findall(value) if _RANDOM.search(word))
        return
    if proof := _SIGNED.match(value):
        yield from proof.groups()
        return
    if name.lower().endswith("authorization"):
        value = _SCHEME.sub("", value, count=1)
    yield from _WORD.findall(value)
    if _SHORT_NAME.fullmatch(name) and not re.search(r"\s", value.strip()):
        yield value.strip()


def find_query_secrets(url: str) -> Iterator[str]:
    """The credentials in the query of an address, decoded."""
    for name, value in _QUERY_PART.findall(url):
        if _PARAMETER.fullmatch(_decode_percent(name)):
            yield _decode_percent(value)


def redact_query(url: str, mark: str) -> str:
    """The address without the values of parameters whose names say that they are credentials."""

    def replace(part: re.Match[str]) -> str:
        return f"{part[1]}={mark}" if _PARAMETER.fullmatch(_decode_percent(part[1])) else part[0]

    return _QUERY_PART.sub(replace, url)


def is_plain_word(secret: str) -> bool:
    """True for a short secret that people write, such as `none`."""
    return len(secret) < LONG_CHARACTERS and secret.isalpha()


def _decode_percent(text: str) -> str:
    return _PERCENT.sub(lambda run: bytes.fromhex(run[0].replace("%", "")).decode("utf-8", "replace"), text)


@lru_cache(maxsize=64)
def _compile_secrets(secrets: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(_secret_pattern, secrets)))


def _secret_pattern(secret: str) -> str:
    spelled = "".join(map(_character_pattern, secret))
    alone = len(secret) < LONG_CHARACTERS
    return rf"(?<![A-Za-z0-9]){spelled}(?![A-Za-z0-9])" if alone else spelled


def _character_pattern(character: str) -> str:
    code = ord(character)
    forms = [re.escape(character), rf"\\{{1,4}}u{_hex_pattern(f'{code:04x}')}"]
    if code < 256:
        forms.append(f"%{_hex_pattern(f'{code:02x}')}")
    if character in '/"\\':
        forms.append(rf"\\{{1,4}}{re.escape(character)}")
    return f"(?:{'|'.join(forms)})"


def _is_open(secret: str, text: str, at: int) -> bool:
    """The text from here to its end is a secret, spelled somehow, of which the end is missing.

    A short secret is open even when it is whole: a letter after it would make it part of another word.
    """
    places = {at}
    for character in secret:
        if len(text) in places or any(_HALF_SPELLED.fullmatch(text, place) for place in places):
            return True
        spelled = _spelling(character)
        places = {found.end() for place in places if (found := spelled.match(text, place))}
        if not places:
            return False
    return len(secret) < LONG_CHARACTERS and len(text) in places


@lru_cache(maxsize=1024)
def _spelling(character: str) -> re.Pattern[str]:
    return re.compile(_character_pattern(character))


def _hex_pattern(digits: str) -> str:
    return "".join(digit if digit.isdigit() else f"[{digit}{digit.upper()}]" for digit in digits)


def _parse_object(value: str) -> dict[str, object] | None:
    if not value.lstrip().startswith("{"):
        return None
    try:
        given = json.loads(value)
    except ValueError:
        return None
    return given if isinstance(given, dict) else None
