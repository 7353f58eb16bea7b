"""The reference of public names, made from signatures and docstrings: one page for each group of names."""

import ast
import inspect
import re
import textwrap
from importlib import import_module
from types import FunctionType, MethodType, ModuleType

import bridle

GROUPS = (
    ("agents", "Agents, runs and sessions", r"run\.|config\."),
    ("tools", "Tools", r"tools\.|ports\.(tool|run_context)"),
    ("events", "Events", r"values\.events"),
    ("errors", "Errors", r"values\.errors"),
    ("watchers", "Watchers, metrics and traces", r"watchers\.|ports\.(watcher|span)"),
    ("values", "Values", r""),
)
"""Page name, title, and the modules whose names stand there; the first group that fits has a name."""
MODULES = (
    "errors", "events", "hooks", "hosted", "mcp", "memory", "messages", "serve", "sessions", "testing", "toolkit",
    "tools", "watchers",
)  # fmt: skip
WIDTH_MAX = 90


def write_api_pages() -> dict[str, str]:
    """Each page's path in the site, and its text."""
    names: dict[str, list[str]] = {page: [] for page, _, _ in GROUPS}
    for name in bridle.__all__:
        home = getattr(bridle, name).__module__.removeprefix("bridle.")
        names[next(page for page, _, pattern in GROUPS if re.match(pattern, home))].append(name)
    pages = {
        f"api/{page}.md": f"# {title}\n\nFrom `bridle`.\n\n"
        + "\n".join(_describe(bridle, name) for name in names[page])
        for page, title, _ in GROUPS
    }
    for name in MODULES:
        module = import_module(f"bridle.{name}")
        listed = "\n".join(_describe(module, each) for each in sorted(module.__all__))
        pages[f"api/{name}.md"] = f"# bridle.{name}\n\n{_docstring(module)}\n\n{listed}"
    return pages


def _describe(module: ModuleType, name: str) -> str:
    found = getattr(module, name)
    title = f"## {name}\n\n"
    if inspect.isclass(found):
        return f"{title}{_call(name, found)}{_docstring(found)}\n\n{_methods(found)}"
    if inspect.isroutine(found):
        return f"{title}{_call(name, found)}{_docstring(found)}\n"
    if inspect.ismodule(found):
        return f"{title}{_docstring(found)}\n"
    return f"{title}```python\n{name} = {found!r}\n```\n"


def _methods(kind: type) -> str:
    """The public methods and properties that the class or a base of Bridle defines."""
    found: dict[str, object] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("bridle"):
            found |= {name: value for name, value in vars(base).items() if not name.startswith("_")}
    parts = []
    for name in sorted(found):
        value = inspect.getattr_static(kind, name)
        if isinstance(value, property):
            parts.append(f"### {kind.__name__}.{name}\n\n{_docstring(value)}\n")
        elif isinstance(value, classmethod | staticmethod) or inspect.isfunction(value):
            function = getattr(kind, name)
            parts.append(f"### {kind.__name__}.{name}\n\n{_call(name, function)}{_docstring(function)}\n")
    return "\n".join(parts)


def _call(name: str, found: object) -> str:
    """The signature as it is written in the source, with the names of types that the source uses."""
    returns = ""
    if inspect.isclass(found):
        written = _constructor(found)
    else:
        function = _parse(found)
        assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        written = _parameters(function.args)
        returns = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    text = f"{name}({', '.join(written)}){returns}"
    if len(text) > WIDTH_MAX:
        text = f"{name}(\n    " + ",\n    ".join(written) + f",\n){returns}"
    prefix = "async def " if inspect.iscoroutinefunction(found) else ""
    return f"```python\n{prefix}{text}\n```\n\n"


def _constructor(kind: type) -> list[str]:
    """The parameters of `__init__`, or the fields of a class that has none of its own."""
    if isinstance(kind.__init__, FunctionType) and "<string>" not in kind.__init__.__code__.co_filename:
        function = _parse(kind.__init__)
        assert isinstance(function, ast.FunctionDef)
        return _parameters(function.args)
    fields: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("bridle"):
            body = _parse(base)
            assert isinstance(body, ast.ClassDef)
            fields |= {
                each.target.id: ast.unparse(each)
                for each in body.body
                if isinstance(each, ast.AnnAssign)
                and isinstance(each.target, ast.Name)
                and "ClassVar" not in ast.unparse(each)
            }
    return [fields[name] for name in fields if not name.startswith("_")]


def _parse(found: object) -> ast.stmt:
    assert isinstance(found, type | FunctionType | MethodType)
    return ast.parse(textwrap.dedent(inspect.getsource(found))).body[0]


def _parameters(arguments: ast.arguments) -> list[str]:
    parts = [_parameter(*each) for each in _positional(arguments) if each[0].arg not in ("self", "cls")]
    if arguments.posonlyargs and parts:
        parts.insert(len([each for each in arguments.posonlyargs if each.arg not in ("self", "cls")]), "/")
    if arguments.vararg:
        parts.append(f"*{ast.unparse(arguments.vararg)}")
    elif arguments.kwonlyargs:
        parts.append("*")
    parts += [
        _parameter(each, default)
        for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    if arguments.kwarg:
        parts.append(f"**{ast.unparse(arguments.kwarg)}")
    return parts


def _positional(arguments: ast.arguments) -> list[tuple[ast.arg, ast.expr | None]]:
    names = [*arguments.posonlyargs, *arguments.args]
    missing: list[ast.expr | None] = [None] * (len(names) - len(arguments.defaults))
    return list(zip(names, [*missing, *arguments.defaults], strict=True))


def _parameter(each: ast.arg, default: ast.expr | None) -> str:
    return ast.unparse(each) + (f" = {ast.unparse(default)}" if default else "")


def _docstring(found: object) -> str:
    """The docstring as Markdown: indented examples become code blocks."""
    lines = (inspect.getdoc(found) or "").splitlines()
    written: list[str] = []
    inside = False
    for line in lines:
        if line.startswith("    ") and not inside and (not written or not written[-1].strip()):
            written.append("```text")
            inside = True
        elif inside and line and not line.startswith("    "):
            while written and not written[-1].strip():
                written.pop()
            written += ["```", ""]
            inside = False
        written.append(line[4:] if inside else line)
    return "\n".join([*written, "```"] if inside else written)
