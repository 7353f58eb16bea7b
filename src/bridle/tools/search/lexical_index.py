"""The default tool index: searches the words in names, descriptions and parameters.

Ranks like a search engine for documents with fields (BM25): a word counts more if few tools have it, if it is in
the name, and if the tool's text is short.  A query word that no tool has also matches words with the same prefix
(`repo`), near misspellings and synonyms (word_stems.py), each with a part of its weight.

Sums are computed in input order, never in set order: floating-point sums depend on the order, and tools with
almost equal ranks must not change places.
"""

import difflib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from bridle.tools.names import split_tool_name
from bridle.values.request import ToolSpec

from .word_stems import list_stems, list_synonyms

FIELD_WEIGHTS = {"name": 4.0, "namespace": 1.0, "description": 1.0, "parameter": 0.6, "about parameter": 0.3}
"""Weights of a word by field."""
SYNONYM_WEIGHT, PREFIX_WEIGHT, TYPO_WEIGHT = 0.5, 0.6, 0.5
SATURATION, LENGTH_SHARE = 1.2, 0.5
"""BM25's k1 (how soon repeated words stop counting) and b (penalty of long texts)."""
PREFIX_LENGTH_MIN, TYPO_LENGTH_MIN, TYPO_SIMILARITY_MIN = 4, 5, 0.84
QUERY_WORDS_MAX = 200
"""Further words of a long prompt are ignored."""
RELATIVE_RANK_MIN = 0.25
"""Tools below this share of the best rank are left out."""
SCHEMA_DEPTH_MAX = 8


class LexicalIndex:
    """A `ToolIndex` without a service or a model."""

    def __init__(self) -> None:
        self._tools: Sequence[ToolSpec] = ()
        self._table = _WordTable(())

    async def find(self, query: str, tools: Sequence[ToolSpec], limit: int) -> Sequence[str]:
        if tools is not self._tools:
            self._tools, self._table = tools, _WordTable(tools)
        ranked = self._table.rank_tools(query)
        minimum = ranked[0].rank * RELATIVE_RANK_MIN if ranked else 0.0
        return [found.name for found in ranked[:limit] if found.rank >= minimum]


class RankedTool(NamedTuple):
    name: str
    rank: float


class _WordTable:
    """The positions and weights of each word."""

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self._names = [spec.name for spec in tools]
        self._word_positions: dict[str, dict[int, float]] = {}
        lengths = []
        for place, spec in enumerate(tools):
            length = 0.0
            for field, text in _tool_texts(spec):
                for word in list_stems(text):
                    at = self._word_positions.setdefault(word, {})
                    at[place] = at.get(place, 0.0) + FIELD_WEIGHTS[field]
                    length += FIELD_WEIGHTS[field]
            lengths.append(length)
        mean = sum(lengths) / len(lengths) if lengths else 0.0
        self._length_penalties = [
            SATURATION * (1 - LENGTH_SHARE + LENGTH_SHARE * length / mean) if mean else SATURATION
            for length in lengths
        ]

    def rank_tools(self, query: str) -> list[RankedTool]:
        ranks = [0.0] * len(self._names)
        for word in list(dict.fromkeys(list_stems(query)))[:QUERY_WORDS_MAX]:
            gains: dict[int, float] = {}
            for meant, weight in self._matching_words(word):
                for place, count in self._word_positions[meant].items():
                    gain = (
                        weight
                        * self._word_weight(meant)
                        * count
                        * (SATURATION + 1)
                        / (count + self._length_penalties[place])
                    )
                    # Each query word counts once per tool, with its best match.
                    gains[place] = max(gains.get(place, 0.0), gain)
            for place, gain in gains.items():
                ranks[place] += gain
        order = sorted(range(len(ranks)), key=lambda place: (-ranks[place], place))
        return [RankedTool(self._names[place], ranks[place]) for place in order if ranks[place] > 0]

    def _matching_words(self, word: str) -> Iterator[tuple[str, float]]:
        """The tools' words that a query word may mean, with their weights."""
        if word in self._word_positions:
            yield word, 1.0
        else:
            yield from (
                (known, PREFIX_WEIGHT) for known in self._word_positions if _shares_prefix(known, word)
            )
            if len(word) >= TYPO_LENGTH_MIN:
                near = difflib.get_close_matches(
                    word, list(self._word_positions), n=2, cutoff=TYPO_SIMILARITY_MIN
                )
                yield from ((known, TYPO_WEIGHT) for known in near)
        yield from ((other, SYNONYM_WEIGHT) for other in list_synonyms(word) if other in self._word_positions)

    def _word_weight(self, word: str) -> float:
        """Inverse document frequency: a word that every tool has weighs almost nothing."""
        having, everything = len(self._word_positions[word]), len(self._names)
        return math.log(1 + (everything - having + 0.5) / (having + 0.5))


def _shares_prefix(known: str, word: str) -> bool:
    shorter = min(len(known), len(word))
    return shorter >= PREFIX_LENGTH_MIN and known[:shorter] == word[:shorter]


def _tool_texts(spec: ToolSpec) -> Iterator[tuple[str, str]]:
    namespace, own = split_tool_name(spec.name)
    yield "namespace", namespace
    yield "name", own
    yield "description", spec.description
    try:
        yield from _parameter_texts(msgspec.json.decode(spec.parameters), SCHEMA_DEPTH_MAX)
    except msgspec.DecodeError:
        return  # an invalid schema is reported elsewhere; the tool is still found by name


def _parameter_texts(schema: Any, depth: int) -> Iterator[tuple[str, str]]:
    if not isinstance(schema, Mapping) or depth == 0:
        return
    properties = schema.get("properties")
    for name, about in properties.items() if isinstance(properties, Mapping) else ():
        yield "parameter", name
        if isinstance(about, Mapping) and isinstance(about.get("description"), str):
            yield "about parameter", about["description"]
        yield from _parameter_texts(about, depth - 1)
    yield from _parameter_texts(schema.get("items"), depth - 1)
