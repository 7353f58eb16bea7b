"""Finds the model that a string names: its endpoint, abilities and price.

    vendor:model            the vendor's row in endpoints.toml, the model's in models.toml
    vendor:model@URL        the same at another address
    vendor:=model           exactly that id, even if it looks like a typing error
    sim:                    the simulator with its default model
    sim:VENDOR/MODEL        the simulator of that vendor's model; VENDOR may be a wire family

All knowledge about vendors and models is data: in the two tables beside this file and in the file named by
$BRIDLE_MODELS (tables.py reads them). This file contains no names.

New models appear every day, so an id that is not in the tables is not an error: it gets the abilities of the
newest model of its group (neutral abilities if the endpoint serves other groups too) and no price. At an
address that the user gave, structured output is requested with a tool: llama.cpp's server ignores the native
form on two of its three wires. An id that is *almost* in the tables is an error, because otherwise the vendor
would refuse it later with a confusing message.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from urllib.parse import urlsplit

import msgspec

from bridle.ports.transport import OutgoingRequest
from bridle.values.errors import MissingKey, MisuseError, UnknownModel
from bridle.values.model import Auth, Endpoint, Model

from .sigv4 import signed_headers
from .tables import EndpointRow, Tables, load_tables

WORD_LIKENESS_MIN = 0.75
"""Minimum similarity at which a word counts as a misspelling of another; 1 is equal."""
MODELS_SHOWN_MAX = 3
NAMES_SHOWN_MAX = 12
SIMULATED_ENDPOINT_HEADER = "x-simulated-endpoint"
"""Tells a simulator which endpoint to simulate; sent for endpoints that serve any model."""

_HEADER_BY_AUTH: dict[Auth, tuple[str, str]] = {
    "bearer": ("authorization", "Bearer {}"),
    "x-api-key": ("x-api-key", "{}"),
    "x-goog-api-key": ("x-goog-api-key", "{}"),
    "api-key": ("api-key", "{}"),
}
_WITH_URL = re.compile(r"(?P<name>.*?)@(?!(?:\d+|default|latest)(?:@|$))(?P<url>.*)")
"""Some vendors have ids with an @ and a version; anything else after an @ is an address."""
_URL_VARIABLE = re.compile(r"\{(?P<names>[\w,]+)(?:\|(?P<default>[^{}]*))?\}")
"""A placeholder in a base URL: the first of these variables that is set, or the default after the bar."""


Signer = Callable[[OutgoingRequest, float], tuple[tuple[str, str], ...]]
"""Returns the authentication headers for a request and the current time."""


def find_model(string: str, *, environ: Mapping[str, str], needs_address: bool = True) -> Model:
    """Return the model that a string names; raise `UnknownModel`.

    With `needs_address=False` the model need not have an address: unset placeholders in its URL stay as they are.
    """
    tables = _load_tables(environ)
    vendor, colon, rest = string.strip().partition(":")
    row = tables.endpoints.get(vendor) if colon else None
    if row is None:
        raise UnknownModel(_explain_unknown_vendor(string, vendor, tables))
    name, url = _split_url(rest, tables)
    name = name or row.default
    exact, name = name.startswith("="), name.removeprefix("=")
    if not name:
        raise UnknownModel(f"{string!r} names no model; write for example `{tables.example_model_name}`")
    part, lead, role = row, f"{vendor}:", ""
    if row.simulated:
        role, part, name = _resolve_simulated_endpoint(name, vendor, tables)
        lead = f"{vendor}:{role}/"
    entry = tables.find_entry(part, name)
    if (
        entry is None
        and not exact
        and (near := _guess_model_id(name, tables.model_ids(part), guess=not part.others))
    ):
        raise UnknownModel(
            f"no model {name!r} is known, but {near!r} is: write `{lead}{near}`,"
            f" or `{vendor}:={lead.removeprefix(f'{vendor}:')}{name}` if you mean what you wrote"
        )
    abilities = (entry or tables.newest_entry(part)).abilities
    if url and entry is None and "structured_output" not in part.abilities:
        # A model of an unknown server, which may ignore an output schema that its wire has a field for.
        abilities = msgspec.structs.replace(abilities, structured_output="tool")
    if not url:
        url = (
            _base_url(vendor, row, environ) if needs_address or _has_base_url(row, environ) else row.base_url
        )
    return Model(
        id=name,
        endpoint=_make_endpoint(vendor, row, part, url, environ, role),
        abilities=abilities,
        price=entry.price if entry else None,
    )


def known_models(environ: Mapping[str, str] | None = None) -> tuple[Model, ...]:
    """Return every model in the tables at every endpoint that serves it, in order; base URLs unresolved."""
    environ = environ or {}
    tables = _load_tables(environ)
    return tuple(
        Model(
            id=name,
            endpoint=_make_endpoint(vendor, row, row, row.base_url, environ),
            abilities=entry.abilities,
            price=entry.price,
        )
        for vendor, row in tables.endpoints.items()
        for name in tables.model_ids(row)
        if (entry := tables.find_entry(row, name))
    )


def find_profile(family: str, model: str, *, environ: Mapping[str, str]) -> str:
    """Return the server profile that a simulator uses for a model: that of the first endpoint serving it."""
    tables = _load_tables(environ)
    for row in tables.endpoints.values():
        if row.family == family and tables.find_entry(row, model):
            return row.profile
    return ""


def find_open_profile(vendor: str, *, environ: Mapping[str, str]) -> str | None:
    """Return the server profile of an endpoint that serves any model; None for every other endpoint."""
    row = _load_tables(environ).endpoints.get(vendor)
    return row.profile if row is not None and not row.models and not row.simulated else None


def find_extra_fields(endpoint: Endpoint, *, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the fields that an endpoint takes besides those of its family; any for one in no table."""
    role = dict(endpoint.headers).get(SIMULATED_ENDPOINT_HEADER, "") if endpoint.simulated else ""
    rows = _load_tables(environ).endpoints
    row = rows.get(role or endpoint.name)
    if row is None or row.simulated:
        return () if endpoint.simulated else ("*",)
    elsewhere = row.extra_fields_elsewhere if endpoint.custom_address else ()
    return (*row.extra_fields, *elsewhere)


def choose_default_model(environ: Mapping[str, str]) -> str:
    """Return the default model: of the first vendor with a key, or a simulated one."""
    tables = _load_tables(environ)
    for vendor, row in tables.endpoints.items():
        if (
            row.models
            and not row.key_optional
            and _nonempty_variables(row.key_env, environ)
            and _has_base_url(row, environ)
        ):
            return f"{vendor}:{tables.model_ids(row)[0]}"
    return next(f"{vendor}:" for vendor, row in tables.endpoints.items() if row.simulated)


def missing_address(model: Model) -> str:
    """Return which variables to set for a model without an address; empty if it has one."""
    variables = sorted(
        _URL_VARIABLE.finditer(model.endpoint.base_url), key=lambda variable: variable["default"] is not None
    )
    if not variables:
        return ""
    vendor, names = model.endpoint.name, variables[0]["names"].split(",")
    return (
        f"no address for {model.name}: set {' or '.join((*names, *model.endpoint.base_url_env))},"
        f" or write `{vendor}:MODEL@URL`"
    )


def find_key(model: Model, environ: Mapping[str, str]) -> str | None:
    """Return the key for a model's endpoint; None if it needs none; raise `MissingKey`."""
    names = model.endpoint.key_env
    for name in names:
        value = environ.get(name, "").strip()
        if value and not re.fullmatch("[!-~]+", value):
            raise MissingKey(f"{name} holds characters that no key has, such as spaces; set it again")
        if value:
            return value
    if not names or make_signer(model, environ) is not None:
        return None
    endpoints = _load_tables(environ).endpoints
    free = "".join(
        f", or use `{vendor}:`, which needs none" for vendor, row in endpoints.items() if row.simulated
    )
    signed = f", or {' and '.join(model.endpoint.signing_env[:2])}" if model.endpoint.signing_env else ""
    raise MissingKey(f"no key for {model.name}: set {' or '.join(names)}{signed}{free}")


def make_signer(model: Model, environ: Mapping[str, str]) -> Signer | None:
    """Return the signer for an endpoint without a key if its account variables are set, else None."""
    endpoint = model.endpoint
    if not endpoint.signing or _nonempty_variables(endpoint.key_env, environ):
        return None
    access_key, secret_key, session_token = (
        *(environ.get(name, "").strip() for name in endpoint.signing_env),
        *("",) * 3,
    )[:3]
    if not access_key or not secret_key:
        return None
    service, _, region = endpoint.signing.partition("/")

    def sign(outgoing: OutgoingRequest, now: float) -> tuple[tuple[str, str], ...]:
        return signed_headers(
            outgoing.method,
            outgoing.url,
            outgoing.body,
            service=service,
            region=region,
            access_key=access_key,
            secret_key=secret_key,
            session_token=session_token,
            now=now,
            headers=outgoing.headers,
        )

    return sign


def auth_headers(endpoint: Endpoint, secret: str | None) -> tuple[tuple[str, str], ...]:
    if secret is None or endpoint.auth == "none":
        return ()
    name, form = _HEADER_BY_AUTH[endpoint.auth]
    return ((name, form.format(secret)),)


def _make_endpoint(
    vendor: str,
    row: EndpointRow,
    part: EndpointRow,
    base_url: str,
    environ: Mapping[str, str],
    role: str = "",
) -> Endpoint:
    """Build an endpoint; a simulated one has its own name and address, and the wire of `part`."""
    elsewhere = base_url if base_url != row.base_url.rstrip("/") else ""
    return Endpoint(
        name=vendor,
        family=part.family,
        base_url=base_url,
        auth=row.auth,
        key_env=_nonempty_variables(row.key_env, environ) if row.key_optional else row.key_env,
        base_url_env=row.base_url_env,
        custom_address=elsewhere,
        signing=_URL_VARIABLE.sub(lambda place: _url_variable_value(place, environ), row.signing),
        signing_env=row.signing_env,
        headers=(
            *part.headers.items(),
            *(((SIMULATED_ENDPOINT_HEADER, role),) if role and not part.models else ()),
        ),
        reasoning=(part.reasoning_elsewhere if elsewhere else None) or part.reasoning,
        app="" if base_url else row.app,
        simulated=row.simulated,
        dialect=msgspec.json.encode(part.dialect, order="deterministic").decode() if part.dialect else "",
    )


def _resolve_simulated_endpoint(name: str, vendor: str, tables: Tables) -> tuple[str, EndpointRow, str]:
    """Return what a simulator simulates: its name in the string, the endpoint row and the model id."""
    real = {word: row for word, row in tables.endpoints.items() if not row.simulated}
    word, slash, model = name.partition("/")
    candidates = [
        *([real[word]] if word in real else ()),
        *(row for row in real.values() if row.family == word),
    ]
    if candidates and model:
        return word, next((row for row in candidates if tables.find_entry(row, model)), candidates[0]), model
    for other, row in real.items():
        if not slash and tables.find_entry(row, name):
            return other, row, name
    words = ", ".join(dict.fromkeys((*list(real)[:NAMES_SHOWN_MAX], *(row.family for row in real.values()))))
    raise UnknownModel(
        f"`{vendor}:{name}` names no vendor or wire family to simulate ({words});"
        f" write `{vendor}:VENDOR/MODEL`, or `{vendor}:` alone"
    )


def _explain_unknown_vendor(string: str, vendor: str, tables: Tables) -> str:
    vendors = list(tables.endpoints)
    like: list[str] = []
    for name, row in tables.endpoints.items():
        for model in tables.model_ids(row):
            if string.strip().endswith(model):
                return f"{string!r} names no known vendor; did you mean `{name}:{model}`?"
            if ":" not in string and string.strip() and string.strip().lower() in model:
                like.append(f"`{name}:{model}`")
    if like:
        return f"{string!r} names no vendor; write VENDOR:MODEL, for example {', '.join(like[:MODELS_SHOWN_MAX])}"
    near = get_close_matches(vendor.lower(), vendors, n=1, cutoff=0.5)
    hint = f"did you mean `{near[0]}:`?" if near else f"write for example `{tables.example_model_name}`"
    return f"{string!r} names no known vendor ({', '.join(vendors[:NAMES_SHOWN_MAX])}); {hint}"


def _split_url(rest: str, tables: Tables) -> tuple[str, str]:
    found = _WITH_URL.fullmatch(rest)
    if found is None:
        return rest.strip(), ""
    if problem := _explain_bad_url(found["url"]):
        example = f"{tables.example_model_name}@https://host/path"
        raise UnknownModel(f"the text after @ is not a base URL: {problem}; write for example `{example}`")
    return found["name"].strip(), found["url"].rstrip("/")


def _base_url(vendor: str, row: EndpointRow, environ: Mapping[str, str]) -> str:
    for name in row.base_url_env:
        if url := environ.get(name, "").strip():
            if problem := _explain_bad_url(url):
                raise MisuseError(
                    f"{name} is not a base URL: {problem}; set it to something like https://host/path"
                )
            return url.rstrip("/")
    for place in _missing_url_variables(row, environ):
        raise MisuseError(
            f"`{vendor}:` answers at {row.base_url}: set {' or '.join(place)}, or write `{vendor}:MODEL@URL`"
        )
    url = _URL_VARIABLE.sub(lambda place: _url_variable_value(place, environ).rstrip("/"), row.base_url)
    if row.base_url and (problem := _explain_bad_url(url)):
        raise MisuseError(f"`{vendor}:` answers at {row.base_url}, which is not a base URL here: {problem}")
    return url.rstrip("/")


def _has_base_url(row: EndpointRow, environ: Mapping[str, str]) -> bool:
    return bool(_nonempty_variables(row.base_url_env, environ)) or not _missing_url_variables(row, environ)


def _missing_url_variables(row: EndpointRow, environ: Mapping[str, str]) -> list[list[str]]:
    """Return the variables of each unset placeholder in the base URL."""
    return [
        place["names"].split(",")
        for place in _URL_VARIABLE.finditer(row.base_url)
        if not _url_variable_value(place, environ)
    ]


def _url_variable_value(place: re.Match[str], environ: Mapping[str, str]) -> str:
    held = _nonempty_variables(place["names"].split(","), environ)
    return environ[held[0]].strip() if held else place["default"] or ""


def _nonempty_variables(names: Sequence[str], environ: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(name for name in names if environ.get(name, "").strip())


def _explain_bad_url(url: str) -> str:
    """Return why a URL cannot be a base URL; empty if it can."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  # reading it checks it
    except ValueError as error:
        return str(error).lower()
    if parts.scheme not in ("http", "https"):
        return "it does not start with http:// or https://"
    if not parts.hostname or re.search(r"\s", url):
        return "it has no host" if not parts.hostname else "it has a space in it"
    if parts.username or parts.password:
        return "it holds a user or password, which would be written to the log"
    return "it has a query or a fragment" if parts.query or parts.fragment else ""


def _guess_model_id(name: str, ids: Sequence[str], *, guess: bool) -> str:
    """Return the known id that was probably meant; empty if this looks like a model of its own.

    Numbers are no evidence: another number is another version, and new versions appear every day. Misspelt
    words and different punctuation are evidence.
    """
    alphanumeric = re.sub(r"[\W_]", "", name.lower())
    for known_id in ids:
        spelt, typed = known_id.lower(), name.lower()
        if re.sub(r"[\W_]", "", spelt) == alphanumeric or spelt.endswith((f"-{typed}", f".{typed}")):
            return known_id
    if not guess:
        return ""
    vocabulary = sorted({word for known_id in ids for word in re.findall("[a-z]+", known_id.lower())})
    corrected = name.lower()
    for word in re.findall("[a-z]+", corrected):
        near = get_close_matches(word, vocabulary, n=1, cutoff=WORD_LIKENESS_MIN)
        if word not in vocabulary and near:
            corrected = corrected.replace(word, near[0])
    if corrected == name.lower():
        return ""
    return corrected if corrected in ids else get_close_matches(corrected, ids, n=1, cutoff=0.0)[0]


def _load_tables(environ: Mapping[str, str]) -> Tables:
    return load_tables(environ.get("BRIDLE_MODELS", ""))
