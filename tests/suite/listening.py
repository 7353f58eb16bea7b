"""Python audit events of Bridle, observed in a test and in every program it starts.

Nothing but the standard library is imported here, and no more than is needed: this runs before programs whose
tests ask what they import.
"""

import atexit
import json
import os
import sys

FILE = "BRIDLE_WITNESS"
"""Names the file to which programs write what they hear."""
OURS = "bridle."
BODIES = {"asked": 3, "heard": 2}
"""Where in what is told the bytes of a request stand."""
ENDED = "ended"
"""What a program writes last. A program that was killed has not written it."""
BODY_SHOWN = 600


def listen(sink):
    """Hear of everything from now on; Python has no way to stop."""

    def hook(event, told):
        if event.startswith(OURS):
            sink(*name_happening(event.removeprefix(OURS), told))

    sys.addaudithook(hook)


def name_happening(kind, told):
    """What is told, without the values it is told with."""
    match kind:
        case "recorded":
            record, event = told[1], told[1].event
            aside = "elsewhere" if getattr(event, "model_key", "") else "aside"
            beside = aside if getattr(event, "summarizes_until", "") else ""
            return kind, record.prev, record.hash, type(event).__name__, getattr(event, "digest", ""), beside
        case "refused":
            refusal, body = told
            return kind, refusal.family, refusal.rule, refusal.message, shorten(json.dumps(body, default=str))
        case _:
            return kind, *told


def shorten(value):
    told = str(value)
    return told if len(told) <= BODY_SHOWN else f"{told[:BODY_SHOWN]} …"


class Scribe:
    """Writes what is heard to a file, at once: the next moment may be the program's last."""

    def __init__(self, path):
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        atexit.register(self.write, ENDED)

    def write(self, kind, *told):
        line = [each.decode("utf-8", "surrogateescape") if isinstance(each, bytes) else each for each in told]
        os.write(self._file, json.dumps([os.getpid(), kind, *line]).encode() + b"\n")


def read(path):
    """(process, what it wrote), line by line; the file is empty afterwards."""
    with path.open("rb+") as file:
        lines = file.read().splitlines()
        file.truncate(0)
    for line in lines:
        try:
            process, *told = json.loads(line)
        except ValueError:
            continue  # its program was killed while it wrote
        if (body := BODIES.get(told[0])) is not None:
            told[body] = told[body].encode("utf-8", "surrogateescape")
        yield process, told
