"""Base class of the codecs: names the schema dialects of a wire and reports what a request loses.

A codec states which settings its wire supports. An unsupported one is omitted from the body, and its notice
goes to the log.
"""

from collections.abc import Iterable

from bridle.ports.codec import Decoder
from bridle.values.base import Value
from bridle.values.message import Media, Message, ToolResult, is_written_for
from bridle.values.model import Model
from bridle.values.request import Extra, OutputSpec, Request

from .schema.tool_schema import explain_unsupported_output, find_renamed, list_schema_losses, restore_fields
from .wire.hosted import HostedForms, list_hosted_losses
from .wire.media import describe_unsent_media
from .wire.message_form import MessageForm
from .wire.tool_names import ToolNameRules, restore_tool_names


class SupportedSettings(Value, kw_only=True):
    """Settings that a wire has a field for."""

    stop_sequences: bool = True
    top_k: bool = True
    parallel: bool = True
    """A switch that allows only one call per reply."""
    no_calls: bool = True
    """A tool choice that forbids calls."""
    mode: bool = True
    budget: bool = True
    effort: bool = True
    display: bool = True
    server_state: bool = False
    """A conversation that the provider stores."""


def list_unsent_settings(request: Request, carries: SupportedSettings) -> tuple[str, ...]:
    sampling, thinking, choice = request.sampling, request.thinking, request.tool_choice
    requested = {
        "stop_sequences": bool(sampling.stop_sequences),
        "top_k": sampling.top_k is not None,
        "mode": bool(thinking and thinking.mode),
        "budget": thinking is not None and thinking.budget_tokens is not None,
        "effort": bool(thinking and thinking.effort),
        "display": bool(thinking and thinking.display),
        "server_state": request.keeps_server_state,
        "parallel": bool(request.tools) and not choice.parallel and choice.mode != "none",
        "no_calls": bool(request.tools) and choice.mode == "none",
    }
    at = request.model.endpoint.name
    return tuple(
        _NOTICES[name].format(at=at)
        for name, is_requested in requested.items()
        if is_requested and not getattr(carries, name)
    )


_NOTICES = {
    "stop_sequences": "stop sequences were left out: {at} has no field for them",
    "top_k": "top_k was left out: {at} has no field for it",
    "mode": "the thinking mode was left out: {at} has no field for it",
    "budget": "the thinking budget was left out: {at} has no field for it",
    "effort": "the effort was left out: {at} has no field for it",
    "display": "the display of reasoning was left out: {at} has no field for it",
    "server_state": "the conversation is sent whole: {at} does not store it (chain)",
    "parallel": "parallel=False was left out: {at} has no switch for it, so a reply may have several calls",
    "no_calls": "tool choice 'none' was left out: {at} has no value for it; the tools stay declared, and a"
    " call is answered without being run",
}


class BaseCodec:
    """A family sets the attributes and adds `new_history`, `encode`, `new_decoder` and `decode_request`."""

    family: str
    messages_field = "messages"
    message_form: MessageForm
    """Members that only message lists of this wire have."""
    reserved_fields: frozenset[str] = frozenset()
    tool_dialect: str
    output_dialect: str
    tool_names: ToolNameRules | None = None
    """Rules for names of tools; None if the decoder restores renamed tools itself."""

    def recognizes_item(self, item: object) -> bool:
        return self.message_form.matches(item)

    def check_extra(self, extra: Extra) -> None:
        """Every extra is sent as it is, unless a family says otherwise."""

    def restore_tools(self, decoder: Decoder, request: Request) -> Decoder:
        """Wrap a decoder if names of tools or of their fields were changed on this wire."""
        tools = (*request.tools, *request.deferred_tools) if request.deferred_tools else request.tools
        names, fields = find_renamed(tools, self.tool_names, self.tool_dialect, self.family)
        if names:
            decoder = restore_tool_names(decoder, names)
        return restore_fields(decoder, fields, self.tool_dialect) if fields else decoder

    def list_losses(self, request: Request, *, with_schemas: bool = True) -> tuple[str, ...]:
        losses = list_unsent_settings(request, self.supported_settings(request))
        if with_schemas:
            losses = (*list_schema_losses(request, self.tool_dialect, self.output_dialect), *losses)
        for spec in request.tools:
            if spec.hosted is not None:
                losses += list_hosted_losses(spec, self.hosted_forms(request.model), request.model)
        return losses

    def list_unsent_media(self, messages: Iterable[Message], model: Model) -> tuple[str, ...]:
        found: dict[str, None] = {}
        for message in messages:
            if message.role == "assistant":
                continue
            is_own = message.origin is not None and message.origin.endpoint == model.endpoint.endpoint_id
            for part in message.parts:
                is_result = isinstance(part, ToolResult)
                for media in part.parts if isinstance(part, ToolResult) else (part,):
                    if not isinstance(media, Media):
                        continue
                    is_kept = media.native is not None and (is_own or is_written_for(media, self.family))
                    if not is_kept and not self.carries_media(media, model, in_result=is_result):
                        found[describe_unsent_media(media, model.endpoint.name)] = None
        return tuple(found)

    def carries_media(self, media: Media, model: Model, *, in_result: bool) -> bool:
        """False if media of a user or a tool has no form on this wire, so that a text is sent in its place."""
        return True

    def hosted_forms(self, model: Model) -> HostedForms:
        """The declarations of hosted tools on this wire."""
        return ()

    def supported_settings(self, request: Request) -> SupportedSettings:
        """The settings that have a field where this request goes."""
        return SupportedSettings()

    def explain_unsupported_output(self, output: OutputSpec, model: Model) -> str:
        return explain_unsupported_output(output, self.output_dialect)
