"""`output_config.format`, and `output_format`, which older clients send."""

from collections.abc import Mapping

from ._rules_reading import mapping


def find_schema(body: Mapping[str, object]) -> object:
    current = mapping(mapping(body.get("output_config")).get("format"))
    return (current or mapping(body.get("output_format"))).get("schema")
