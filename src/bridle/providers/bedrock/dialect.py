"""Differences between the models of Bedrock Converse, as data.

The wire is the same for all models, but it has room for each maker's own fields, and models differ in what
they require. Each difference is a field here, whose default follows the documentation; code reads the field
and never compares names.

An endpoint of this family sets the fields that differ in its `dialect`, as a JSON object.

Locations of settings are member names from the root of the body down, separated by dots; an empty location
means that the model does not accept the setting, and it is not sent.
"""

from bridle.providers.wire.dialect import read_dialect
from bridle.values.base import Value
from bridle.values.model import Endpoint

FAMILY = "bedrock_converse"
MODEL_FIELDS = "additionalModelRequestFields"
"""Member for fields that only one maker's models know."""


class BedrockDialect(Value, kw_only=True):
    mode_at: str = f"{MODEL_FIELDS}.thinking.type"
    budget_at: str = f"{MODEL_FIELDS}.thinking.budget_tokens"
    display_at: str = f"{MODEL_FIELDS}.thinking.display"
    effort_at: str = "outputConfig.effort"
    top_k_at: str = ""
    no_calls: str = ""
    """JSON merged into the body if no tool may be called, for models that have a switch for it.

    The wire has none. Without a switch of the model, a call is answered without being run.
    """
    sealed_by: str = (
        r"(?<![\w-])(?!(?:global|us|us-gov|eu|apac|jp|au|ca)\.)[A-Za-z][\w-]*\..+$"
        r"|^[^.]+$"
    )
    """The part of a model's id that must be equal for one model to read what another signed (wire/dialect.py).

    The region prefix of an id says where the model runs, not which one it is.
    """
    result_status: bool = True
    """True if a result has an error status; otherwise its first text reports the error."""


DEFAULT_DIALECT = BedrockDialect()


def dialect_for(endpoint: Endpoint | None) -> BedrockDialect:
    return read_dialect(endpoint, DEFAULT_DIALECT)
