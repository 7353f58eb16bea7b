"""Derives `vendor_shapes.json` from the vendors' published types: `python -m tests.wire.vendors.make_vendor_shapes [--check]`.

It needs the vendors' packages (`make oracles` has them).  Only facts are kept: names of members, their types, which
of them are required, and literal values.  `vendor_shapes.py` reads the file and says how it is laid out.

    anthropic, openai   TypedDicts for requests, pydantic models for replies and stream events
    google-genai        the converters that write requests name the members of the wire; the models type them
    botocore            the service description
"""

import ast
import collections.abc
import datetime
import enum
import gzip
import importlib.metadata
import inspect
import json
import os
import sys
import textwrap
import types
import typing
from pathlib import Path
from typing import Any

import typing_extensions

TABLE = Path(__file__).with_name("vendor_shapes.json")
PACKAGES = ("anthropic", "openai", "google-genai", "botocore")
PLAIN = {
    str: "str",
    int: "int",
    float: "num",
    bool: "bool",
    object: "any",
    typing.Any: "any",
    type(None): "null",
}
LISTS = (list, tuple, set, collections.abc.Iterable, collections.abc.Sequence)
FILES = (typing.IO, os.PathLike)
MAPS = (dict, collections.abc.Mapping)
HEADER = "anthropic-"
AWS_PLAIN = {
    "string": "str", "integer": "int", "long": "int", "double": "num", "float": "num", "boolean": "bool", "blob": "b64",
    "timestamp": "num",
}  # fmt: skip


def merge(nodes):
    """One node for a union: unions inside it are opened, repetitions removed, literals put together."""
    flat, literals = [], []
    for node in nodes:
        for each in node[1:] if isinstance(node, list) and node[0] == "|" else [node]:
            if isinstance(each, list) and each[0] == "=":
                literals += [value for value in each[1:] if value not in literals]
            elif each not in flat:
                flat.append(each)
    if literals and not (set(map(type, literals)) == {str} and "str" in flat):
        flat.append(["=", *literals])
    if "any" in flat:
        return "any"
    if "num" in flat and "int" in flat:
        flat.remove("int")
    return flat[0] if len(flat) == 1 else ["|", *flat]


def without_null(node):
    if not isinstance(node, list) or node[0] != "|" or "null" not in node:
        return node
    return merge([each for each in node[1:] if each != "null"])


class Table:
    """Named shapes, filled while types are walked; a shape may name itself."""

    def __init__(self):
        self.shapes, self.names = {}, {}

    def name(self, key, prefix, title):
        """The name for a type and whether it is new."""
        if key in self.names:
            return self.names[key], False
        name, number = f"{prefix}.{title}", 1
        while name in self.shapes:
            number += 1
            name = f"{prefix}.{title}~{number}"
        self.names[key] = name
        self.shapes[name] = {}
        return name, True

    def put(self, name, required, optional, more=None):
        shape = {"req": required, "opt": optional, "more": more}
        self.shapes[name].update({key: value for key, value in shape.items() if value})


class Python:
    """Walks annotations: TypedDicts, pydantic models, and whatever they are made of."""

    def __init__(self, table, prefix, *, models, nulls=True, in_headers=frozenset()):
        """`nulls`: an optional member may be written as null; one package leaves such members out instead.

        `in_headers`: members that are sent as headers.
        """
        self.table, self.prefix, self.models, self.nulls = table, prefix, models, nulls
        self.in_headers = in_headers

    def node(self, kind):
        found = self.written(kind)
        return found if self.nulls else without_null(found)

    def written(self, kind):
        if read_notes(kind, "format") == "base64":
            return "b64"
        kind = plain_type(kind)
        if kind in PLAIN:
            return PLAIN[kind]
        origin, inner = typing.get_origin(kind), typing.get_args(kind)
        if origin is typing.Literal:
            return ["=", *inner]
        if origin in (typing.Union, types.UnionType):
            return merge([node for each in inner if (node := self.node(each)) is not None])
        if origin in LISTS or (origin and getattr(origin, "__name__", "") == "SequenceNotStr"):
            item = self.node(inner[0])
            return None if item is None else ["[]", item]
        if origin in MAPS:
            return ["{}", self.node(inner[1])]
        if typing_extensions.is_typeddict(kind):
            return self.typed_dict(kind)
        if inspect.isclass(kind):
            return self.of_class(kind)
        if isinstance(kind, typing.TypeVar):
            return "any"
        if origin in FILES:
            return None  # a convenience of the package: a file is read before it is sent
        raise TypeError(kind)

    def of_class(self, kind):
        if hasattr(kind, "model_fields"):
            return self.model(kind) if self.models else None
        if issubclass(kind, enum.Enum):
            return ["=", *(each.value for each in kind)]
        if issubclass(kind, bytes):
            return "b64"
        if issubclass(kind, (datetime.datetime, datetime.date)):
            return "str"
        return PLAIN.get(kind) or ("any" if kind in (dict, list) else None)

    def typed_dict(self, kind):
        name, new = self.table.name(kind, self.prefix, kind.__qualname__)
        if new:
            required, optional = {}, {}
            for member, hint in typing_extensions.get_type_hints(kind, include_extras=True).items():
                alias = read_notes(hint, "alias") or member
                if alias not in self.in_headers:
                    place = required if is_required(kind, member, hint) else optional
                    place[alias] = self.node(hint)
            more = getattr(kind, "__extra_items__", None)
            open_to = "any" if more is object else None
            self.table.put(name, drop_none(required), drop_none(optional), open_to)
        return f"#{name}"

    def model(self, kind):
        name, new = self.table.name(kind, self.prefix, kind.__qualname__)
        if new:
            required, optional = {}, {}
            for member, field in kind.model_fields.items():
                place = required if field.is_required() else optional
                place[field.alias or member] = self.node(field.annotation)
            self.table.put(name, drop_none(required), drop_none(optional))
        return f"#{name}"


def list_header_members(method):
    """The parameters that a method of Anthropic's package sends as headers."""
    code = ast.parse(textwrap.dedent(inspect.getsource(method)))
    pairs = [
        (key, value)
        for each in ast.walk(code)
        if isinstance(each, ast.Dict)
        for key, value in zip(each.keys, each.values, strict=True)
    ]
    names = {
        name.id
        for key, value in pairs
        if isinstance(key, ast.Constant) and str(key.value).startswith(HEADER)
        for name in ast.walk(value)
        if isinstance(name, ast.Name)
    }
    return frozenset(names & inspect.signature(method).parameters.keys())


def drop_none(members):
    return {name: node for name, node in sorted(members.items()) if node is not None}


def plain_type(kind):
    """A type without its annotations; an alias stands for what it names."""
    while True:
        if isinstance(kind, typing_extensions.TypeAliasType):
            kind = kind.__value__
        elif typing.get_origin(kind) in (
            typing.Annotated, typing_extensions.Required, typing_extensions.NotRequired, typing_extensions.ReadOnly,
        ):  # fmt: skip
            kind = typing.get_args(kind)[0]
        else:
            return kind


def is_required(kind, member, hint):
    """Annotations may be text when the class is made, so `Required` is looked for in what they mean."""
    said = typing.get_origin(hint)
    if said in (typing_extensions.Required, typing_extensions.NotRequired):
        return said is typing_extensions.Required
    return member in kind.__required_keys__


def read_notes(hint, what):
    """What a member's annotation says about how it is written."""
    while typing.get_origin(hint) in (typing_extensions.Required, typing_extensions.NotRequired):
        hint = typing.get_args(hint)[0]
    notes = getattr(hint, "__metadata__", ())
    return next((getattr(note, what) for note in notes if getattr(note, what, None)), None)


class Genai:
    """The members that google-genai writes for the Gemini Developer API.

    A converter is a row of `if getv(from_object, [member]) is not None: setv(target, [wire name], value)`.
    Where it raises instead, the member exists on another platform only.
    """

    def __init__(self, table, module, types_module):
        self.table, self.types = table, types_module
        self.python = Python(table, "g", models=True, nulls=False)
        tree = ast.parse(inspect.getsource(module))
        self.converters = {each.name: each for each in tree.body if isinstance(each, ast.FunctionDef)}
        self.module = module.__name__

    def root(self, converter, model, extra=()):
        """The shape of a body: what the converter and those it gives itself to write into it."""
        members = self.members(converter, model)
        return self.put(f"{converter} {self.module}", f"{model}Body", {**members["to_object"], **dict(extra)})

    def put(self, key, title, members):
        name, new = self.table.name(key, "g", title)
        if new:
            self.table.put(name, {}, drop_none(members))
        return f"#{name}"

    def members(self, converter, model):
        """The members a converter writes, by the object it writes them into."""
        fields = getattr(self.types, model, None) or getattr(self.types, f"_{model}")
        found = {"to_object": {}, "parent_object": {}}
        for branch in self.converters[converter].body:
            if not isinstance(branch, ast.If) or not isinstance(branch.body[0], ast.Expr):
                continue
            written: Any = branch.body[0].value
            member = branch.test.left.args[1].elts[0].value  # type: ignore[attr-defined]
            annotation = fields.model_fields[member].annotation
            if written.func.id != "setv":
                self.node(written.func.id, annotation)
                found["to_object"].update(self.parents[written.func.id])
                continue
            target, path, value = written.args
            wire = [each.value for each in path.elts]
            if wire[0].startswith("_"):
                continue
            inner = self.inner(value)
            node = self.node(inner, annotation) if len(wire) == 1 else ["{}", "any"]
            found[target.id][wire[0]] = ["[]", node] if inner and isinstance(value, ast.ListComp) else node
            found["to_object"].update(self.parents.get(inner, {}))
        return found

    parents: typing.ClassVar = {}

    def inner(self, value):
        names = [
            each.func.id
            for each in ast.walk(value)
            if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)
        ]
        return next((name for name in names if name in self.converters), None)

    def node(self, converter, annotation):
        """The type of a member: what its converter writes, else what its annotation says."""
        if converter is None:
            return self.python.node(annotation)
        model = converter.removeprefix("_").removesuffix("_to_mldev")
        key = f"{converter} {self.module}"
        if key not in self.table.names:
            name, _ = self.table.name(key, "g", model)
            members = self.members(converter, model)
            self.parents[converter] = members["parent_object"]
            self.table.put(name, {}, drop_none(members["to_object"]))
        return f"#{self.table.names[key]}"


class Aws:
    """Shapes of a service description."""

    def __init__(self, table, description):
        self.table, self.described = table, description["shapes"]

    def node(self, title):
        shape = self.described[title]
        match shape["type"]:
            case "structure":
                return self.structure(title, shape)
            case "list":
                return ["[]", self.node(shape["member"]["shape"])]
            case "map":
                return ["{}", self.node(shape["value"]["shape"])]
            case "string" if "enum" in shape:
                return ["=", *shape["enum"]]
            case kind:
                return AWS_PLAIN[kind]

    def structure(self, title, shape):
        if shape.get("document"):
            return "any"
        name, new = self.table.name(f"aws {title}", "b", title)
        if new:
            required, optional = {}, {}
            for member, told in shape["members"].items():
                if told.get("location") is None:
                    place = required if member in shape.get("required", ()) else optional
                    place[told.get("locationName", member)] = self.node(told["shape"])
            self.table.put(name, required, optional)
            if shape.get("union"):
                self.table.shapes[name]["one"] = True
        return f"#{name}"


def service_description():
    import botocore

    folder = Path(botocore.__file__).parent / "data" / "bedrock-runtime"
    newest = max(folder.iterdir()) / "service-2.json"
    if newest.exists():
        return json.loads(newest.read_text())
    return json.loads(gzip.decompress(newest.with_suffix(".json.gz").read_bytes()))


def anthropic_roots(table):
    from anthropic import types as stable
    from anthropic.resources.beta.messages import Messages
    from anthropic.types import beta
    from anthropic.types import message_create_params as create
    from anthropic.types.beta import message_create_params as beta_create

    in_headers = list_header_members(Messages.create) | list_header_members(Messages.count_tokens)
    assert "betas" in in_headers, "headers of a preview are not members of a body"
    request = Python(table, "a", models=False, in_headers=in_headers)
    reply = Python(table, "a", models=True)
    return {
        "anthropic": request.node(create.MessageCreateParams),
        "anthropic count": request.node(stable.MessageCountTokensParams),
        "anthropic reply": reply.node(stable.Message),
        "anthropic event": reply.node(stable.RawMessageStreamEvent),
        "anthropic beta": request.node(beta_create.MessageCreateParams),
        "anthropic beta count": request.node(beta.MessageCountTokensParams),
        "anthropic beta reply": reply.node(beta.BetaMessage),
        "anthropic beta event": reply.node(beta.BetaRawMessageStreamEvent),
    }


def openai_roots(table):
    from openai.types import chat, responses
    from openai.types.chat import completion_create_params as chat_create
    from openai.types.responses import (
        input_token_count_params,
        response_compact_params,
        response_create_params,
    )

    request, reply = Python(table, "o", models=False), Python(table, "o", models=True)
    return {
        "openai_responses": request.node(response_create_params.ResponseCreateParams),
        "openai_responses compact": request.node(response_compact_params.ResponseCompactParams),
        "openai_responses count": request.node(input_token_count_params.InputTokenCountParams),
        "openai_responses reply": reply.node(responses.Response),
        "openai_responses event": reply.node(responses.ResponseStreamEvent),
        "openai_chat": request.node(chat_create.CompletionCreateParams),
        "openai_chat reply": reply.node(chat.ChatCompletion),
        "openai_chat event": reply.node(chat.ChatCompletionChunk),
    }


def gemini_roots(table):
    from google.genai import caches, models
    from google.genai import types as shapes

    request, store = Genai(table, models, shapes), Genai(table, caches, shapes)
    return {
        "gemini": request.root("_GenerateContentParameters_to_mldev", "GenerateContentParameters"),
        "gemini count": request.root("_CountTokensParameters_to_mldev", "CountTokensParameters"),
        "gemini store": store.root(
            "_CreateCachedContentParameters_to_mldev", "CreateCachedContentParameters", [("model", "str")]
        ),
        "gemini reply": request.python.node(shapes.GenerateContentResponse),
    }


def bedrock_roots(table):
    aws = Aws(table, service_description())
    return {
        "bedrock_converse": aws.node("ConverseRequest"),
        "bedrock_converse stream": aws.node("ConverseStreamRequest"),
        "bedrock_converse count": aws.node("CountTokensRequest"),
        "bedrock_converse reply": aws.node("ConverseResponse"),
        "bedrock_converse event": aws.node("ConverseStreamOutput"),
    }


def derive():
    table, roots = Table(), {}
    for of_vendor in (anthropic_roots, openai_roots, gemini_roots, bedrock_roots):
        roots.update(of_vendor(table))
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {"versions": versions, "roots": roots, "shapes": dict(sorted(table.shapes.items()))}


def write(derived):
    """JSON, one shape a line, so that a new version of a package is a readable difference."""
    lines = [
        f'"versions":{json.dumps(derived["versions"])},',
        f'"roots":{json.dumps(derived["roots"])},',
        '"shapes":{',
    ]
    rows = [
        f"{json.dumps(name)}:{json.dumps(shape, separators=(',', ':'))}"
        for name, shape in derived["shapes"].items()
    ]
    return "\n".join(["{", *lines, ",\n".join(rows), "}}", ""])


def main():
    text = write(derive())
    if "--check" in sys.argv:
        sys.exit(
            TABLE.read_text() != text and f"{TABLE.name} is not what the packages say: run {sys.argv[0]}"
        )
    TABLE.write_text(text)
    print(f"{TABLE.name}: {len(text):,} characters")


if __name__ == "__main__":
    main()
