"""Fields of a request that go out as headers: beta features, and for whom a request is.

The vendor's SDKs take them as parameters beside those of the body. As members of the body they are refused.
"""

import re

import msgspec

from bridle.ports.codec import HttpRequest
from bridle.providers.wire.extras import parse_extra
from bridle.values.errors import MisuseError
from bridle.values.request import Extra

BETA_HEADER, BETAS = "anthropic-beta", "betas"
HEADER_FIELDS = {
    BETAS: BETA_HEADER,
    "user_profile_id": "anthropic-user-profile-id",
    "workspace_id": "anthropic-workspace-id",
}
LIST_SEPARATOR = re.compile(r"\s*,\s*")
NAMES_MAX = 100
_NAME = re.compile(r"[\w.:-]{1,200}", re.ASCII)


def encode_header(extra: Extra) -> str:
    """The value of the header for an extra; empty if the extra is null. Raises `MisuseError` for what is no name."""
    value = parse_extra(extra)
    names = value if isinstance(value, list) and extra.name == BETAS else [] if value is None else [value]
    if len(names) > NAMES_MAX or not all(isinstance(each, str) and _NAME.fullmatch(each) for each in names):
        expected = "a list of names" if extra.name == BETAS else "a name"
        raise MisuseError(
            f"extra {extra.name!r} is the header {HEADER_FIELDS[extra.name]}: it must be {expected}, of letters,"
            " digits and '-', '_', '.', ':'"
        )
    return ",".join(names)


def split_list(value: str) -> list[str]:
    """The names in the value of a header."""
    return [each for each in LIST_SEPARATOR.split(value.strip()) if each]


def read_headers(request: HttpRequest) -> tuple[Extra, ...]:
    """The headers of a client's request that ask for something, as extras; raises `ValueError` for what is no name."""
    given = {name.lower(): value.strip() for name, value in request.headers}
    found = []
    for name, header in HEADER_FIELDS.items():
        if value := given.get(header):
            said = split_list(value) if name == BETAS else value
            found.append(Extra(name=name, json=msgspec.json.encode(said).decode()))
            try:
                encode_header(found[-1])
            except MisuseError as error:
                raise ValueError(str(error)) from None
    return tuple(found)
