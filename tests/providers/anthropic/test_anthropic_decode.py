"""Replies that only Anthropic makes; `tests/providers/kit` holds what every wire must do."""

from decimal import Decimal

from bridle.values.message import Stop
from bridle.values.usage import Price, Rates
from tests.providers.anthropic.anthropic_replies import (
    BEGIN,
    END,
    WIRE,
    message,
    message_delta,
    start,
    stream,
)


def test_calls_made_before_a_model_declined_are_not_calls():
    used = {"type": "tool_use", "id": "t", "name": "a", "input": {}}
    reply, _ = WIRE.decode(message(used, {"type": "fallback", "from": {}, "to": {}}, {**used, "id": "u"}))
    assert [type(part).__name__ for part in reply.parts] == ["Opaque", "Opaque", "ToolCall"]
    assert [call.wire_id for call in reply.calls] == ["u"]


def test_a_byte_order_mark_is_passed_over():
    text = {"type": "text", "text": "hi"}
    assert WIRE.decode(b"\xef\xbb\xbf" + message(text), size=1)[0].text == "hi"
    assert WIRE.decode(b"\n\n" + stream(BEGIN, start(0, **text), END), size=1)[0].text == "hi"


PRICE = Price(
    tiers=(
        Rates(
            input=Decimal(1),
            output=Decimal(5),
            cache_read=Decimal("0.1"),
            cache_write=Decimal("1.25"),
            cache_write_1h=Decimal(2),
        ),
    )
)


def test_a_refusal_before_a_word_is_counted_and_not_charged():
    counts = {"input_tokens": 1_000_000, "output_tokens": 1}
    refused = WIRE.decode(message(stop_reason="refusal", content=[], usage=counts))[0]
    assert (refused.stop, refused.usage.input) == (Stop.REFUSED, 1_000_000)
    assert PRICE.cost(refused.usage) == 0
    begun = {"type": "message_start", "message": {**BEGIN["message"], "usage": counts}}
    assert WIRE.decode(stream(begun, message_delta("refusal"), END))[0].usage == refused.usage
    said = [{"type": "text", "text": "Well"}]
    spoke = WIRE.decode(message(stop_reason="refusal", content=said, usage=counts))[0]
    assert PRICE.cost(spoke.usage) > 1
    silent = WIRE.decode(message(content=[], usage=counts))[0]
    assert PRICE.cost(silent.usage) > 1


def test_what_is_kept_for_an_hour_costs_what_an_hour_costs():
    split = {"ephemeral_5m_input_tokens": 400_000, "ephemeral_1h_input_tokens": 600_000}
    for total in (1_000_000, None):
        counts = {"input_tokens": 0, "output_tokens": 0, "cache_creation_input_tokens": total}
        reply = WIRE.decode(message(usage={**counts, "cache_creation": split}))[0]
        assert PRICE.cost(reply.usage) == Decimal("1.7")
