"""Base class of the codecs: names the schema dialects of a wire and reports what they lose."""

from bridle.values.model import Model
from bridle.values.request import OutputSpec, Request

from .schema.tool_schema import explain_unsupported_output, list_schema_losses
from .wire.message_form import MessageForm
from .wire.unsent_settings import SupportedSettings, list_unsent_settings


class BaseCodec:
    """A family sets the attributes and adds `new_history`, `encode`, `new_decoder` and `decode_request`."""

    family: str
    messages_field = "messages"
    message_form: MessageForm
    """Members that only message lists of this wire have."""
    tool_dialect: str
    output_dialect: str

    def recognizes_item(self, item: object) -> bool:
        return self.message_form.matches(item)

    def list_losses(self, request: Request) -> tuple[str, ...]:
        return (
            *list_schema_losses(request, self.tool_dialect, self.output_dialect),
            *list_unsent_settings(request, self.supported_settings(request)),
        )

    def supported_settings(self, request: Request) -> SupportedSettings:
        """The settings that have a field where this request goes."""
        return SupportedSettings()

    def explain_unsupported_output(self, output: OutputSpec, model: Model) -> str:
        return explain_unsupported_output(output, self.output_dialect)
