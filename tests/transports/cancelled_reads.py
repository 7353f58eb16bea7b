"""Requests that are cancelled in the middle of the answer."""

import asyncio

from bridle.transports.http import HttpTransport
from tests.transports.local_server import make_outgoing


async def listen(url, heard):
    async with HttpTransport().open(make_outgoing(url)) as answer:
        async for piece in answer.chunks():
            heard.set_result(piece)


async def cancel_in_the_middle(url):
    heard = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(listen(url, heard))
    assert await heard == b"half"
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
