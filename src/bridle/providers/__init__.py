"""Translates between Bridle's values and each provider's wire: one folder per wire family.

Here: the list of families, the catalogue of models, the tables of endpoints. `wire/` is what all families share,
`schema/` compiles JSON Schema for each of them. A codec only translates: it opens no connection, reads no clock,
knows no key, and decides nothing.
"""

from .families import family_names as family_names
from .families import load_codec as load_codec
