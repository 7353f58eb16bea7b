"""The only source of chance.

Whatever is drawn is recorded with the event it was drawn for, so that a log can be folded without it.
"""

from collections.abc import Callable

Chance = Callable[[], float]
"""A number from 0 up to 1, another one every time; `random.Random(seed).random` is one for tests."""
