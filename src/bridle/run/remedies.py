"""Names what a person has to change when a provider refuses a key or does not know a model."""

from ..values.errors import FailureKind
from ..values.model import Model


def remedy(kind: FailureKind, model: Model) -> str:
    """The variable or the model string to change, in words; empty where neither is to blame."""
    endpoint = model.endpoint
    if kind == "unauthorized":
        names = (*endpoint.key_env, *endpoint.signing_env[:2])
        listed = " or ".join(f"${name}" for name in names)
        return f"check the key for {model.name}" + (f" in {listed}" if listed else "")
    if kind == "not_found":
        address = f" and the address {endpoint.base_url}" if endpoint.elsewhere else ""
        return f"check the model string {model.name!r}{address}"
    return ""
