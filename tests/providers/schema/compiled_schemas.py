"""Schemas as they are compiled for a dialect."""

import hashlib
import json

import msgspec

from bridle.providers.schema.compiler import compile_schema, find_dialect


def compile_for(schema, name):
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return compile_schema(text, find_dialect(name))


def digest(examples, dialects):
    made = [compile_for(schema, name) for schema in examples for name in dialects]
    return hashlib.sha256(msgspec.json.encode(made)).hexdigest()
