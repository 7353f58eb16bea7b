"""Prompt templates: texts with declared variables, whose version is recorded where they are used.

    GREETING = PromptTemplate("greeting", "You work for {company}.", variables=("company",))
    Agent("sim:", instructions=GREETING.fill(company="Acme"))

Values are inserted as they are and never read as a template. A literal brace is doubled.
"""

import os
import re
import string
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from pathlib import Path

from bridle.values.errors import MisuseError
from bridle.values.media import read_at_most
from bridle.values.memory import FilledPrompt, TemplateVersion
from bridle.values.text import repair_surrogates

VERSION_BYTES = 8
TEMPLATE_BYTES_MAX = 4 * 1024 * 1024
VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
TemplateValue = str | int | float


class PromptTemplate:
    """A text with declared variables.  Raises `MisuseError` if they do not match the text."""

    def __init__(self, name: str, text: str, *, variables: Iterable[str] = ()) -> None:
        for option, given in (("name", name), ("text", text)):
            if not isinstance(given, str) or not given.strip():
                raise MisuseError(f"PromptTemplate({option}=…) must be a text, not {given!r}")
        if isinstance(variables, str):
            raise MisuseError(f"template {name!r}: variables must be a list of names, not {variables!r}")
        self.name, self.text, self.variables = name, repair_surrogates(text), tuple(variables)
        used = self._read_variables()
        for variable in self.variables:
            if variable not in used:
                raise MisuseError(f"template {name!r}: its text does not use the variable {variable!r}")
        for variable in used:
            if variable not in self.variables:
                raise MisuseError(
                    f"template {name!r}: its text uses {variable!r}, which is not declared;"
                    f" add it to variables=…, or write {{{{{variable}}}}} for a literal brace"
                )
        data = "\x00".join((self.name, self.text, *self.variables)).encode()
        self.version = TemplateVersion(
            name=name, version=blake2b(data, digest_size=VERSION_BYTES).hexdigest()
        )

    @classmethod
    def from_path(
        cls, path: str | os.PathLike[str], *, name: str | None = None, variables: Iterable[str] = ()
    ) -> "PromptTemplate":
        """Read a template from a file; its name is that of the file unless given."""
        try:
            text = read_at_most(path, TEMPLATE_BYTES_MAX).decode().replace("\r\n", "\n")
        except (OSError, UnicodeDecodeError) as error:
            raise MisuseError(f"cannot read the template {os.fspath(path)!r}: {error}") from None
        return cls(name or Path(path).stem, text, variables=variables)

    def fill(self, **values: TemplateValue) -> FilledPrompt:
        """The text with a value for every variable."""
        for variable in self.variables:
            if variable not in values:
                raise MisuseError(f"template {self.name!r} needs a value for {variable!r}")
        for variable, value in values.items():
            if variable not in self.variables:
                known = ", ".join(self.variables) or "none"
                raise MisuseError(f"template {self.name!r} has no variable {variable!r}; it has: {known}")
            if not isinstance(value, str | int | float):
                raise MisuseError(
                    f"template {self.name!r}: {variable} must be a text or a number,"
                    f" not {type(value).__name__}"
                )
        pieces = string.Formatter().parse(self.text)
        text = "".join(
            literal + (str(values[field]) if field is not None else "") for literal, field, _, _ in pieces
        )
        return FilledPrompt(repair_surrogates(text), self.version)

    def _read_variables(self) -> Sequence[str]:
        try:
            pieces = list(string.Formatter().parse(self.text))
        except ValueError as error:
            raise MisuseError(f"template {self.name!r}: {error}; double a literal brace") from None
        for _, field, form, conversion in pieces:
            if field is not None and (form or conversion or not VARIABLE_NAME.fullmatch(field)):
                raise MisuseError(
                    f"template {self.name!r}: {field!r} is not a plain variable name;"
                    " write {name}, or double a literal brace"
                )
        return [field for _, field, _, _ in pieces if field is not None]

    def __repr__(self) -> str:
        return f"<template {self.name} {self.version.version}>"
