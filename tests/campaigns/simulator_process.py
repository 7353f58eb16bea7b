"""The simulator as a program of its own, which is asked over sockets."""

SERVER = """
import asyncio, sys
from bridle.sim.server import serve_simulator
from bridle.sim.simulator import Simulator

async def main():
    async with serve_simulator(Simulator()) as url:
        print(url, flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""
