"""Paragraphs of a folder of text files, and a search over them by BM25. No index is stored: a small folder is read."""

import math
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

WORD = re.compile(r"[^\W_]+")
SUFFIXES = (".md", ".txt", ".rst")
FILE_BYTES_MAX = 1_000_000
SATURATION, LENGTH_WEIGHT = 1.5, 0.75
"""The parameters k1 and b of BM25."""


@dataclass(frozen=True)
class Passage:
    file: str
    line: int
    """Number of its first line, from 1."""
    text: str

    @property
    def source(self) -> str:
        return f"{self.file}:{self.line}"


def split_words(text: str) -> list[str]:
    """Words in lower case, without the plural s."""
    return [word.removesuffix("s") for word in WORD.findall(text.lower())]


def read_passages(folder: Path) -> list[Passage]:
    """Every paragraph of every text file of a folder; raises `NotADirectoryError` if there is no such folder."""
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is not a folder")
    passages: list[Passage] = []
    for path in sorted(folder.rglob("*")):
        if path.suffix not in SUFFIXES or path.is_symlink() or path.stat().st_size > FILE_BYTES_MAX:
            continue
        name = path.relative_to(folder).as_posix()
        start = 1
        lines: list[str] = []
        for number, line in enumerate([*path.read_text("utf-8", "replace").splitlines(), ""], start=1):
            if line.strip():
                start = start if lines else number
                lines.append(line)
            elif lines:
                passages.append(Passage(name, start, "\n".join(lines)))
                lines = []
    return passages


class PassageSearch:
    def __init__(self, passages: list[Passage]) -> None:
        self.passages = passages
        self._counts = [Counter(split_words(f"{each.file} {each.text}")) for each in passages]
        self._lengths = [sum(count.values()) for count in self._counts]
        self._average = sum(self._lengths) / max(1, len(self._lengths))
        self._documents = Counter(word for count in self._counts for word in count)

    def find(self, question: str, limit: int = 4) -> list[Passage]:
        """Passages that share words with the question, best first."""
        words = set(split_words(question))
        scored = [(self._score(words, at), at) for at in range(len(self.passages))]
        best = sorted((pair for pair in scored if pair[0] > 0), key=lambda pair: (-pair[0], pair[1]))
        return [self.passages[at] for _, at in best[:limit]]

    def _score(self, words: set[str], at: int) -> float:
        count, length = self._counts[at], self._lengths[at]
        total = 0.0
        for word in words & count.keys():
            others = self._documents[word]
            rarity = math.log(1 + (len(self.passages) - others + 0.5) / (others + 0.5))
            weight = 1 - LENGTH_WEIGHT + LENGTH_WEIGHT * length / self._average
            total += rarity * count[word] * (SATURATION + 1) / (count[word] + SATURATION * weight)
        return total
