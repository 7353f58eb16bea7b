"""Versions of a tool that pays: the first one with one change of its declaration."""

from bridle import RunContext, tool
from bridle.tools import ToolOptions

CHANGES = (
    "none", "rename", "rename with alias", "remove", "rename argument", "rename argument with upgrade",
    "add optional argument", "add required argument", "remove argument", "docstring", "timeout", "default", "effect",
)  # fmt: skip


def name_tool(change):
    """Name of the tool of this change in the first version, where several are beside each other."""
    return "refund_" + change.replace(" ", "_")


def make_tool(change, ledger, name="refund"):
    """The tool `name` with a change of its declaration; `ledger.pay` pays, and `ledger.find` knows what was paid."""

    def find(call: RunContext) -> str | None:
        return ledger.find(call)

    options = ToolOptions(effect="write", approve=True, on_unknown="probe", probe=find)
    if change == "timeout":
        options["timeout"] = 7.0
    if change == "effect":
        options["effect"] = "exclusive"
    if change == "rename with alias":
        options["aliases"] = [name]
    if change == "rename argument with upgrade":
        options["upgrade"] = lambda old: {
            "number": old["order"],
            "amount": old["amount"],
            "note": old["note"],
        }
    if change in ("rename", "rename with alias"):
        name = name.replace("refund", "send_money")

    if change == "remove":

        @tool(name=f"look_{name}", effect="read")
        def look(order: str) -> str:
            return "nothing"

        return look

    if change.startswith("rename argument"):

        @tool(name=name, description="Pay back.", **options)
        def refund(number: str, amount: int, call: RunContext, note: str = "sorry") -> str:
            return ledger.pay(call, number, amount, note)

    elif change == "add optional argument":

        @tool(name=name, description="Pay back.", **options)
        def refund(
            order: str, amount: int, call: RunContext, note: str = "sorry", urgent: bool = False
        ) -> str:
            return ledger.pay(call, order, amount, note)

    elif change == "add required argument":

        @tool(name=name, description="Pay back.", **options)
        def refund(order: str, amount: int, currency: str, call: RunContext, note: str = "sorry") -> str:
            return ledger.pay(call, order, amount, note)

    elif change == "remove argument":

        @tool(name=name, description="Pay back.", **options)
        def refund(order: str, call: RunContext, note: str = "sorry") -> str:
            return ledger.pay(call, order, 0, note)

    elif change == "default":

        @tool(name=name, description="Pay back.", **options)
        def refund(order: str, amount: int, call: RunContext, note: str = "our pleasure") -> str:
            return ledger.pay(call, order, amount, note)

    else:

        @tool(name=name, description="Pay money back." if change == "docstring" else "Pay back.", **options)
        def refund(order: str, amount: int, call: RunContext, note: str = "sorry") -> str:
            return ledger.pay(call, order, amount, note)

    return refund
