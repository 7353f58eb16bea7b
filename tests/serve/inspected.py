"""Agents and sessions for the inspector: tools, edits, images, failures, approvals, forks, a cache miss."""

import base64
import struct
import zlib
from typing import Any

from bridle import Agent, Media, Text, Thinking, tool
from bridle.run.lineage import fork_session


def make_png(width=160, height=90):
    """A picture with two colour gradients."""
    rows = b"".join(
        b"\0" + b"".join(bytes((40 + x, 90 + y, 200 - x // 2)) for x in range(width)) for y in range(height)
    )
    return pack_png(width, height, rows)


def pack_png(width, height, rows, bits=8, colours=2):
    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colours, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


PNG = base64.b64encode(make_png()).decode()


@tool(effect="read")
def find_order(order: int) -> str:
    """Look up an order."""
    return f"Order {order}: two pairs of boots, shipped on Monday with DHL, arriving on Thursday."


@tool(effect="read")
def read_file(path: str) -> str:
    """Read a file of the project."""
    return "".join(f"{line:>3}  value_{line} = compute({line})\n" for line in range(1, 40))


@tool(effect="write")
def edit_file(path: str, old_text: str, new_text: str) -> str:
    """Replace text in a file."""
    return f"--- a/{path}\n+++ b/{path}\n@@ -1,3 +1,3 @@\n def total(items):\n-    return sum(items)\n+    return sum(item.price for item in items)\n"


@tool(effect="read")
def chart(title: str) -> Media:
    """Draw a chart."""
    return Media.from_bytes(make_png(), name="chart.png")


@tool(effect="read")
def broken(city: str) -> str:
    """A service that fails."""
    raise ValueError(f"no weather for {city!r}")


@tool(effect="write", approve=True)
def refund(order: int, usd: float) -> str:
    """Refund an order; a person has to approve it."""
    return f"Refunded {usd:.2f} USD for order {order}."


SHOP = "You help customers of a shop for outdoor clothes. Be brief and exact. Look up orders before you answer, and never promise a refund yourself."
STORY = """!think The customer asks about a late order. I should look it up first, then compare the dates with the promise in the confirmation mail.
!say Let me look that up.
!call find_order {"order": 4411}
!call find_order {"order": 4412}
!then
!say Order 4411 arrives on Thursday. I will draw the delivery times.
!call chart {"title": "Delivery times"}
!then
!error 529
!say Here it is. Both parcels left the warehouse on Monday, and the carrier needs three days.
!call broken {"city": "Oslo"}
!then
!say The weather service does not answer, but the parcels are on their way:

• 4411: Thursday
• 4412: Thursday"""
NOTICE = (
    "A customer sends boots back. "
    + "The seller takes goods back within thirty days, unworn and in their box. " * 120
)
EDIT = """!think The sum ignores prices; one line has to change.
!call read_file {"path": "shop/cart.py"}
!then
!say The function adds items instead of prices.
!call edit_file {"path": "shop/cart.py", "old_text": "def total(items):\\n    return sum(items)\\n", "new_text": "def total(items):\\n    \\"\\"\\"Price of all items.\\"\\"\\"\\n    return sum(item.price for item in items)\\n"}
!then
!say Fixed: `total` adds the prices now."""


def make_agents(model="sim:"):
    tools: Any = [find_order, read_file, edit_file, chart, broken, refund]
    thinking: Any = Thinking(mode="adaptive", display="summarized")
    shop = Agent(model, name="shop", tools=tools, instructions=SHOP, thinking=thinking)
    writer = Agent(model, name="writer", instructions="You write short, plain texts.")
    return {"shop": shop, "writer": writer}


async def fill_store(host):
    """Record the sessions of a small shop; returns their names."""
    shop, writer = host.agents["shop"], host.agents["writer"]
    await shop.run(
        (
            Text(text=f"Where are my orders 4411 and 4412?\n{STORY}"),
            Media.from_bytes(make_png(), name="receipt.png"),
        ),
        "late-order",
    )
    await shop.run("!say Anything else?", "late-order")
    await shop.run(f"Fix the total of the cart.\n{EDIT}", "fix-cart")
    await writer.run("Write a line about boots.\n!say Boots that walk you home.", "boots")
    await writer.run("!say Boots for every road.", "boots")
    await shop.run(
        'Please refund order 4411.\n!say A colleague has to approve that.\n!call refund {"order": 4411, "usd": 129.9}\n!then\n!say Done.',
        "refund",
    )
    # Other instructions change the start of the prompt: the cache cannot be read.
    moved = Agent(
        "sim:", name="shop", tools=[find_order], instructions=f"{SHOP} Answer in Norwegian.", store=host.store
    )
    for agent in (shop, shop, moved, moved):
        await agent.run(f"{NOTICE}\n!say Thank you for sending it back.", "returns")
    fork = await fork_session(host.store, "late-order", 4, "late-order-2")
    await shop.run("!say In another branch, I answer at once: both arrive on Thursday.", fork.session)
    for number in range(12):
        await writer.run(
            f"Note {number + 1}: a customer asked about sizes.\n!say Noted as number {number + 1}.",
            f"note-{number + 1:02}",
        )
