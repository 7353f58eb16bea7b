"""Beside Converse: nothing but the words for whoever came to the wrong place."""

from .side import Side

SIDE = Side(
    home=lambda path, headers: path.startswith("/model/"),
    lost="Unable to determine service/operation name to be authorized",
    stamp="x-amzn-requestid",
)
