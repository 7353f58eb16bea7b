"""Removal of credentials from text and bytes before they are stored or shown.

A credential is the value of a header, JSON member or query parameter with a telling name, or a word that
looks machine-generated. It is found in every spelling: literal, JSON-escaped, or percent-encoded.

A short credential (under `LONG_CHARACTERS`) is removed only where it stands as a separate word, because the
same letters may occur inside other words. A plain word, such as the key `none` given to local servers, is
removed from error messages only.
"""

import json
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

LONG_CHARACTERS = 8
SHORT_CHARACTERS_MIN = 3
"""Shorter values are not treated as credentials."""

_WORD = re.compile(r"[^\s,;=\"']{8,}=*")
"""Parts of a header that could be a key, a token or a signature."""
_NAME = re.compile(
    r"(?i).*(?:auth(?!or$)|api.?key|\bkey|[-_]key|token|secret|cookie|credential|password|signature|jwt).*"
)
"""Names of headers and JSON members whose values are credentials."""
_SHORT_NAME = re.compile(r"(?i).*(?:authorization|key|secret|password|token)")
"""Names whose entire value is a credential, however short."""
_PARAMETER = re.compile(
    r"(?i).*(?:auth(?!or$)|key|token(?!s)|secret|credential|password|sig(?:nature)?$|jwt).*"
)
"""Names of query parameters whose values are credentials."""
_SCHEME = re.compile(r"\s*[A-Za-z][\w-]*\s+(?=\S)")
"""The scheme before the credential in an Authorization header."""
_SIGNED = re.compile(r"AWS4-\S+ Credential=(?P<key>[^/,\s]+)[^,]*,.*Signature=(?P<signature>\w+)")
"""A SigV4 signature; its date, region and header names are not secret."""
_RANDOM = re.compile(r"(?=[A-Za-z0-9]*\d)(?=[A-Za-z0-9]*[A-Za-z])[A-Za-z0-9]{16,}")
"""Part of a machine-generated word: long, with letters and digits."""
_QUERY_PART = re.compile(r"(?<=[?&;])([^=&;#]+)=([^&;#]*)")
_USER_INFO = re.compile(r"(?i)^([a-z][a-z0-9+.-]*://)[^/?#]*@")
_PERCENT = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_HALF_SPELLED = re.compile(r"\\{1,4}(?:u[0-9A-Fa-f]{0,3})?|%[0-9A-Fa-f]?")
"""An incomplete escape sequence."""
_ESCAPES = ("\\u00", "\\/", "%")


class Redactor:
    """Replaces the given secrets with a mark."""

    def __init__(self, secrets: Iterable[str], mark: str) -> None:
        self._secrets = sorted({each for each in secrets if len(each) >= SHORT_CHARACTERS_MIN}, key=len)[::-1]
        self._mark = mark
        self._begins = {secret[0] for secret in self._secrets} | set("\\%")
        self._signs = (*self._secrets, *_ESCAPES)
        """A text without any of these needs no replacement."""
        self._pattern: re.Pattern[str] | None = None
        self._suspect: re.Pattern[str] | None = None

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
        # guard: redaction-pattern
        return self._pattern.sub(self._mark, text)

    def __bool__(self) -> bool:
        return bool(self._secrets)

    def is_suspect(self, text: str) -> bool:
        """False if the text surely contains no secret and no beginning of one; a quick check."""
        if self._suspect is None:
            self._suspect = _compile_suspects(tuple(self._secrets))
        return self._suspect.search(text) is not None

    def is_clear(self, text: str) -> bool:
        """True if the text surely contains no secret and does not end with the beginning of one; a quick check."""
        if "\\" in text or "%" in text:
            return False
        for secret in self._secrets:
            if secret in text:
                return False
            at = text.find(secret[0], max(0, len(text) - len(secret)))
            while at >= 0:
                if secret.startswith(text[at:]):
                    return False
                at = text.find(secret[0], at + 1)
        return True

    def redact_span(self, text: str, start: int, end: int) -> str:
        """Redact a span of `text`; the text around it determines word boundaries."""
        if self._pattern is None:
            self._pattern = _compile_secrets(tuple(self._secrets))
        pieces, after = [], start
        for found in self._pattern.finditer(text, start):
            if found.end() <= end:
                pieces += [text[after : found.start()], self._mark]
                after = found.end()
        return "".join([*pieces, text[after:end]])

    def find_open_end(self, text: str, start: int = 0) -> int:
        """Index from which the end of `text` may be the beginning of a secret; its length if none.

        Text before that index can be redacted finally, whatever follows. Text before `start` was shown already.
        """
        if not self._secrets:
            return len(text)
        if self._pattern is None:
            self._pattern = _compile_secrets(tuple(self._secrets))
        inside = start
        """End of the last complete secret; an overlapping match is not a secret of its own."""
        for at, letter in enumerate(text):
            if at >= inside and letter in self._begins:
                if any(_is_open(secret, text, at) for secret in self._secrets):
                    return at
                whole = self._pattern.match(text, at)
                inside = whole.end() if whole else inside
        return len(text)

    def redact_bytes(self, data: bytes) -> bytes:
        # Bytes that are not UTF-8 become lone surrogates and are restored.
        decoded = data.decode("utf-8", "surrogateescape")
        return self.redact_text(decoded).encode("utf-8", "surrogateescape")


def find_header_secrets(name: str, value: str) -> Iterator[str]:
    """Credentials in one header, or in one member of a header with JSON."""
    members = _parse_object(value)
    if members is not None:
        for inner, member in members.items():
            yield from find_header_secrets(inner, member if isinstance(member, str) else json.dumps(member))
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
    """Credentials in the query of a URL, decoded."""
    for name, value in _QUERY_PART.findall(url):
        if _PARAMETER.fullmatch(_decode_percent(name)):
            yield _decode_percent(value)


def redact_query(url: str, mark: str) -> str:
    """The URL without the values of parameters whose names mark them as credentials."""

    def replace(part: re.Match[str]) -> str:
        return f"{part[1]}={mark}" if _PARAMETER.fullmatch(_decode_percent(part[1])) else part[0]

    return _QUERY_PART.sub(replace, url)


def hide_user_info(url: str) -> str:
    """The URL without the user and password before its host."""
    return _USER_INFO.sub(r"\1", url)


def redact_json_strings(data: bytes, texts: Iterable[str], mark: str) -> bytes:
    """The data without JSON strings that equal one of the texts, in any spelling."""
    spellings = [
        spelled
        for text in sorted({*texts} - {""})
        for spelled in ("".join(map(_character_pattern, text)), re.escape(json.dumps(text)[1:-1]))
    ]
    if not spellings:
        return data
    decoded = data.decode("utf-8", "surrogateescape")
    replaced = re.sub(f'"(?:{"|".join(spellings)})"', f'"{mark}"', decoded)
    return replaced.encode("utf-8", "surrogateescape")


def is_credential_name(name: str) -> bool:
    """True if a header, member or setting of this name holds a credential."""
    return _NAME.fullmatch(name) is not None


def is_plain_word(secret: str) -> bool:
    """True for a short secret that is an ordinary word, such as `none`."""
    return len(secret) < LONG_CHARACTERS and secret.isalpha()


def _decode_percent(text: str) -> str:
    return _PERCENT.sub(lambda run: bytes.fromhex(run[0].replace("%", "")).decode("utf-8", "replace"), text)


@lru_cache(maxsize=64)
def _compile_secrets(secrets: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(_secret_pattern, secrets)))


@lru_cache(maxsize=64)
def _compile_suspects(secrets: tuple[str, ...]) -> re.Pattern[str]:
    """The first two characters of a secret, its first at the end of a text, and every escape."""
    starts = {re.escape(secret[0]) + rf"(?:\Z|{re.escape(secret[1])})" for secret in secrets}
    return re.compile("|".join([r"[\\%]", *sorted(starts)]))


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
    """True if the text from `at` to its end is the beginning of `secret`, in any spelling.

    A short secret is open even if complete: another letter after it would make it part of another word.
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
        parsed = json.loads(value)
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None
