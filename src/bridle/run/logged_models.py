"""Find the models that a log names in the tables of this machine.

A log may come from elsewhere, so it is data.  Of a model in it only the names are read (vendor, wire, model).
Its address, the variable its key is in and what is imported for it come from the tables and the environment
here.  An address that the tables do not give is used only when the caller names its host.
"""

from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from ..providers.catalogue import find, missing_address
from ..values.errors import MisuseError
from ..values.model import Model


class ForeignEndpoint(MisuseError):
    """A log names an endpoint that is not the one the tables here give for its vendor."""

    def __init__(self, message: str, host: str) -> None:
        super().__init__(message)
        self.host = host


def resolve_logged_model(logged: Model, environ: Mapping[str, str], trusted_host: str = "") -> Model:
    """The model of a log as the tables here know it.

    Raises `ForeignEndpoint`, which names the host and the variable of the key, when the log says another
    address; `trusted_host` is a host that the caller lets it go to all the same.
    """
    endpoint = logged.endpoint
    found = list(_find_known(logged, environ))
    for model in found:
        if (model.endpoint.base_url, model.endpoint.app) == (endpoint.base_url, endpoint.app):
            return model
    if missing_address(logged):
        # It was skipped where the log was written, so the log has no address: the tables here have the word.
        for model in _find_known(logged, environ, spoken_to=False):
            return model
    host = urlsplit(endpoint.base_url).netloc.rpartition("@")[2]
    if not endpoint.base_url:
        raise MisuseError(
            f"the log names {logged.name}, which the tables here do not know, and code to import for it;"
            " nothing is imported because of a log: name a model with --model"
        )
    there = list(_find_known(logged, environ, f"@{endpoint.base_url}"))
    if not there:
        raise MisuseError(
            f"the log names {logged.name} at {host}, and the tables here do not know its vendor;"
            " name a model with --model"
        )
    if trusted_host and trusted_host == host:
        return there[0]
    keys = there[0].endpoint.key_env or there[0].endpoint.signing_env
    sent = f"with the key in {' or '.join(keys)}" if keys else "without a key"
    raise ForeignEndpoint(
        f"the log asks for {logged.name} at {host}, {sent}, and the tables here say another address;"
        f" to go there: --trust-endpoint {host}; to go on elsewhere: --model VENDOR:MODEL",
        host,
    )


def _find_known(
    logged: Model, environ: Mapping[str, str], address: str = "", *, spoken_to: bool = True
) -> Iterator[Model]:
    vendor, roles = logged.endpoint.name, [""]
    if logged.endpoint.simulated:
        roles += [f"{logged.endpoint.family}/", *(f"{role}/" for _, role in logged.endpoint.headers)]
    for role in roles:
        for exact in ("", "="):
            try:
                model = find(
                    f"{vendor}:{exact}{role}{logged.id}{address}", environ=environ, spoken_to=spoken_to
                )
            except MisuseError:
                continue  # not a name of the tables, spelt like this
            if model.endpoint.family == logged.endpoint.family:
                yield model
