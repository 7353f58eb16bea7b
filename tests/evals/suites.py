"""Writes suites for tests."""

TOOLS = '''
from bridle import tool

SEEN = []


@tool(effect="read")
def find_order(id: int) -> str:
    """Find an order."""
    SEEN.append(id)
    return f"order {id} was shipped; seen {len(SEEN)}"


@tool(effect="write", approve=True)
def refund(order: int, amount: float = 1.0) -> str:
    """Pay an order back."""
    return f"refunded {order}"
'''
AGENT = '\n[agent]\nmodel = "sim:"\ntools = ["tools.py"]\n'
CALL = "'!call find_order {\"id\": 7}'"


def write_suite(folder, **files):
    """A suite with these files; `eval_x="…"` is eval_x.toml, `checks_py="…"` is checks.py."""
    folder.mkdir(exist_ok=True)
    (folder / "tools.py").write_text(TOOLS)
    for name, text in files.items():
        stem, _, suffix = name.rpartition("_") if name.endswith("_py") else (name, "", "toml")
        (folder / f"{stem}.{suffix}").write_text(text)
    return folder


def write_task(expect="", head="", replies=f'[{CALL}, "It is on its way: 7."]', agent=AGENT):
    return f'prompt = "Where is order 7?"\nreplies = {replies}\n{head}\n{agent}\n[expect]\n{expect}\n'
