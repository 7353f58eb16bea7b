"""Writes every record as one line of JSON as it happens. Deltas are not part of the log and are not written."""

from typing import TextIO

import msgspec

from bridle.values.record import Record
from bridle.values.result import Delta
from bridle.values.text import escape_text


class JsonLines:
    def __init__(self, out: TextIO) -> None:
        self._out = out

    def on_event(self, session: str, happening: Record | Delta) -> None:
        if isinstance(happening, Record):
            self._out.write(encode_record_line(session, happening) + "\n")
            self._out.flush()


def encode_record_line(session: str, record: Record) -> str:
    fields = {
        "session": session,
        "seq": record.seq,
        "at": record.at,
        "event": msgspec.Raw(record.data),
        "prev": record.prev,
        "hash": record.hash,
    }
    return escape_text(msgspec.json.encode(fields).decode())
