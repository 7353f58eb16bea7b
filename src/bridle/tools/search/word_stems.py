"""Splits names and sentences into word stems for comparison.

`getPullRequests`, `pull_request` and "the pull requests" yield the same stems.  A few rules remove English
endings; a stem need not be a word, but two forms of a word must share it.

`_SYNONYM_GROUPS` lists words that people use for one another when they describe software, such as "get rid of"
for `delete`.
"""

import re
from functools import lru_cache

_WORD_PATTERN = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
STEM_LENGTH_MIN = 3
STEM_CACHE_SIZE = 20_000

_STOP_WORDS_TEXT = """
a an and any are as at be been being but by can could did do does for from had has have here i if in into is
it its just let like may me might must my need needs no not now of off on only or our out please should so
some than that the their them then there these they this to up us very want wants was we were what when
whenever where who whom whose why will with would you your yours about
"""
_STOP_WORDS = frozenset(_STOP_WORDS_TEXT.split())

_SYNONYM_GROUPS = (
    "create add new make open start insert register submit file post schedule book compose write publish set",
    "delete remove erase drop destroy discard throw rid trash purge clear",
    "update change edit modify set rename move adjust switch raise lower replace correct reschedule convert",
    "get fetch read show retrieve view detail display look see tell info",
    "list all every show enumerate which available overview",
    "search find look query lookup seek locate",
    "archive store keep hide away",
    "share access invite grant permission allow",
    "export download csv pdf dump save",
    "watch subscribe notify monitor follow alert track observe know",
    "send deliver mail email message transmit",
    "cancel abort stop revoke terminate end",
    "run execute start launch trigger invoke perform",
    "copy duplicate clone",
    "upload import load attach",
    "merge join combine unite",
    "approve accept confirm allow permit",
    "reject decline deny refuse",
    "assign give allocate delegate",
    "user account member person people customer client",
    "picture image photo screenshot",
    "error failure bug problem wrong fault crash broken",
    "price cost amount fee rate",
    "meeting appointment event call",
    "money cash payment amount",
    "bill invoice",
    "machine vm server host instance",
    "vacation holiday leave absence",
    "weather forecast temperature",
    "directory folder",
    "text words content",
    "translate translation language",
)


def list_stems(text: str) -> list[str]:
    """The stems of a text, in order, without stop words."""
    return [
        _stem_word(word) for word in map(str.lower, _WORD_PATTERN.findall(text)) if word not in _STOP_WORDS
    ]


def list_synonyms(stem: str) -> tuple[str, ...]:
    """Stems with a similar meaning."""
    return _SYNONYMS.get(stem, ())


@lru_cache(maxsize=STEM_CACHE_SIZE)
def _stem_word(word: str) -> str:
    for ending, replacement in (("ies", "y"), ("sses", "ss"), ("ches", "ch"), ("shes", "sh"), ("xes", "x")):
        if word.endswith(ending) and len(word) > len(ending) + 1:
            return word[: -len(ending)] + replacement
    if word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > STEM_LENGTH_MIN:
        word = word[:-1]
    for ending in ("ing", "ed"):
        bare = word[: -len(ending)]
        if (
            word.endswith(ending)
            and len(bare) >= STEM_LENGTH_MIN
            and any(letter in "aeiouy" for letter in bare)
        ):
            doubled = bare[-1] == bare[-2] and bare[-1] not in "lsz"
            word = bare[:-1] if doubled else bare
            break
    return word[:-1] if word.endswith("e") and len(word) > STEM_LENGTH_MIN else word


def _make_synonyms() -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for group in _SYNONYM_GROUPS:
        stems = [_stem_word(word) for word in group.split()]
        for stem in stems:
            found.setdefault(stem, {}).update((other, None) for other in stems if other != stem)
    return {stem: tuple(others) for stem, others in found.items()}


_SYNONYMS = _make_synonyms()
