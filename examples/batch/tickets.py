"""Prints invented support tickets as CSV: `python tickets.py 1000 > tickets.csv`. Equal numbers give equal rows."""

import csv
import random
import sys
from collections.abc import Iterator

TEXTS = {
    "billing": ("I was charged twice for {thing}.", "The invoice is wrong.", "When is my refund for {thing} paid?"),
    "delivery": ("{thing} has not arrived.", "The courier lost {thing}.", "Where is the parcel with {thing}?"),
    "defect": ("{thing} is broken.", "{thing} makes a noise since Monday.", "A part of {thing} is missing."),
    "other": ("Do you have {thing} in green?", "Thank you for {thing}!", "How do I clean {thing}?"),
}  # fmt: skip
THINGS = ("a saddle", "two tubes", "my frame", "the brake pads", "a lamp", "the pump", "my helmet")
URGENT = " I need it today!"


def make_rows(count: int, seed: int = 0) -> Iterator[dict[str, str]]:
    chosen = random.Random(seed)
    for number in range(1, count + 1):
        category = chosen.choice(list(TEXTS))
        text = chosen.choice(TEXTS[category]).format(thing=chosen.choice(THINGS))
        yield {
            "id": f"{number:05}",
            "text": text[0].upper() + text[1:] + (URGENT if chosen.random() < 0.1 else ""),
        }


def main() -> None:
    writer = csv.DictWriter(sys.stdout, ["id", "text"])
    writer.writeheader()
    writer.writerows(make_rows(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))


if __name__ == "__main__":
    main()
