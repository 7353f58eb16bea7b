"""Writes the fields of each vendor's request into the codecs' folders: `python -m tests.wire.vendors.make_request_fields`.

The fields are the members of the request bodies in `vendor_shapes.json`, which is derived from the vendors' packages.
`bridle.providers.ownership` reads the tables: an extra that a vendor does not list is refused.
"""

import re
from pathlib import Path

from tests.wire.vendors.vendor_shapes import load_shapes

PROVIDERS = Path(__file__).parents[3] / "src" / "bridle" / "providers"
SOURCES = {
    "anthropic": ("anthropic", ("anthropic", "anthropic beta")),
    "bedrock": ("botocore", ("bedrock_converse", "bedrock_converse stream")),
    "gemini": ("google-genai", ("gemini",)),
    "openai_chat": ("openai", ("openai_chat",)),
    "openai_responses": ("openai", ("openai_responses",)),
}
"""The package, and the roots of `vendor_shapes.json`, by folder of the codec."""
HEAD = """# Members of a request body, from the published types of `{package}` {version}.
# Written by tests/wire/vendors/make_request_fields.py.

fields = [
{lines}
]
"""
WIDTH = 116


def list_fields(folder):
    """The members of a folder's request bodies, sorted."""
    shapes, found = load_shapes(), set()
    left = [shapes["roots"][root] for root in SOURCES[folder][1]]
    while left:
        node = left.pop()
        if isinstance(node, list):
            left += node[1:]
        else:
            said = shapes["shapes"][node.removeprefix("#")]
            found |= {*said.get("req", {}), *said.get("opt", {})}
    return sorted(found)


def render(folder):
    """The text of a folder's table."""
    package, _ = SOURCES[folder]
    lines, line = [], " "
    for name in list_fields(folder):
        if len(line) + len(name) + 4 > WIDTH:
            lines.append(line)
            line = " "
        line += f' "{name}",'
    version = load_shapes()["versions"][package]
    return HEAD.format(package=package, version=version, lines="\n".join([*lines, line]))


def find_version(text):
    return re.search(r"` ([\d.]+)\.", text)[1]


if __name__ == "__main__":
    for each in SOURCES:
        (PROVIDERS / each / "request_fields.toml").write_text(render(each))
