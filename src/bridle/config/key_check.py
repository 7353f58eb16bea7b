"""Recognizes credentials in settings files, which must not hold any: files are copied, committed and shared."""

import re

from bridle.providers.tables import load_tables
from bridle.values.redaction import is_credential_name

KEY_CHARACTERS_MIN = 12
"""Characters after a known prefix from which a word counts as a key; a placeholder such as `sk-...` does not."""
_CANDIDATE = re.compile(rf"(?<![A-Za-z0-9])(?=[A-Za-z_.-]*\d)[A-Za-z0-9_.-]{{{KEY_CHARACTERS_MIN},}}")
"""A word that may be a key: long, with a digit. Most files have none, and the tables are not loaded for them."""

_DATABASE_PASSWORD = re.compile(r"postgres(?:ql)?://(?:[^/?#@\s]*:[^\s]+@|[^\s]*[?&]password=)")


def explain_credential(name: str, value: str) -> str:
    """The refusal of a value that is a credential; empty if it is none. Never repeats the value."""
    # guard: key-in-settings
    if variable := _find_key_variable(value):
        return (
            f"the value of {name!r} looks like an API key, and keys are not read from files:"
            f" remove it and set the environment variable {variable}"
        )
    # guard: database-password-in-file
    if _DATABASE_PASSWORD.search(value):
        return (
            f"the value of {name!r} is a URL with a password, and passwords are not read from files:"
            " set BRIDLE_STORE, or leave the password out and keep it in ~/.pgpass"
        )
    if is_credential_name(name) and value.strip():
        return (
            f"{name!r} is the name of a credential, and credentials are not read from files:"
            " remove it and set an environment variable; `bridle doctor` lists their names"
        )
    return ""


def _find_key_variable(value: str) -> str:
    """The variable of the vendor whose keys start like a word of the text; the longest prefix wins."""
    candidates = _CANDIDATE.findall(value)
    if not candidates:
        return ""
    rows = load_tables().endpoints.values()
    variables = {
        prefix: (*row.key_env, *row.signing_env)[0]
        for row in reversed(rows)
        for prefix in row.key_prefixes
        if row.key_env or row.signing_env
    }
    for prefix in sorted(variables, key=len, reverse=True):
        if any(
            word.startswith(prefix) and len(word) >= len(prefix) + KEY_CHARACTERS_MIN for word in candidates
        ):
            return variables[prefix]
    return ""
