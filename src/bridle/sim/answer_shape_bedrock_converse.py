"""`outputConfig.textFormat`, and the model's own `output_config` among the additional fields."""

from collections.abc import Mapping

from ._rules_bedrock_converse_formats import answer_schema
from ._rules_reading import mapping


def find_schema(body: Mapping[str, object]) -> object:
    own = mapping(mapping(body.get("additionalModelRequestFields")).get("output_config"))
    return answer_schema(body) or mapping(own.get("format")).get("schema")
