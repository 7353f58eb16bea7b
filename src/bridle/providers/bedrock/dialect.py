"""How one model behind Bedrock Converse differs from the next one, as data.

The wire is one for all models, but it leaves holes for each maker's own fields, and what one model
insists on another refuses.  Each difference is a field here, with the value that suits the wire as it
is documented; code asks for the field and never for a name.

An endpoint of this family that differs says so in its `dialect`: the fields that do, as a JSON object.

Places of settings are names of members, from the top of the body down, with dots between them; an
empty place means that the model does not take the setting, and it is not sent.
"""

from bridle.providers.wire.dialect import read_dialect
from bridle.values.base import Value
from bridle.values.model import Endpoint

FAMILY = "bedrock_converse"
MODEL_FIELDS = "additionalModelRequestFields"
"""Where the fields go that only one maker's models understand."""


class BedrockDialect(Value):
    mode_at: str = f"{MODEL_FIELDS}.thinking.type"
    budget_at: str = f"{MODEL_FIELDS}.thinking.budget_tokens"
    display_at: str = f"{MODEL_FIELDS}.thinking.display"
    effort_at: str = "outputConfig.effort"
    top_k_at: str = ""
    no_calls: str = ""
    """JSON laid over the body when no tool may be called, for models that have a switch for it.

    The wire has none.  Without a switch of the model's own, a call is answered without being run."""
    sealed_by: str = (
        r"(?<![\w-])(?!(?:global|us|us-gov|eu|apac|jp|au|ca)\.)[A-Za-z][\w-]*\..+$"
        r"|^[^.]+$"
    )
    """What of a model's id has to be equal for one to read what another sealed (_home.py).

    The region in front of an id says where the model answers, not which one it is."""
    result_status: bool = True
    """Whether a result may say that it is an error; where it may not, its first words do."""


DEFAULT_DIALECT = BedrockDialect()


def dialect_for(endpoint: Endpoint | None) -> BedrockDialect:
    return read_dialect(endpoint, DEFAULT_DIALECT)
