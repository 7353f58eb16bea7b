"""The bill of a simulated provider: tokens as its answers report them, at the price of the simulated model."""

import json
from decimal import Decimal

from bridle.providers import load_codec
from bridle.run.model_connection import ModelConnection, find_model_by_name
from bridle.sim.simulator import Simulator
from bridle.transports.inprocess import InProcessTransport

USD_PER_MILLION = {
    "input_tokens": Decimal(2),
    "cache_creation_input_tokens": Decimal("2.5"),
    "cache_read_input_tokens": Decimal("0.2"),
    "output_tokens": Decimal(10),
}
"""The price list of `sim:`, by the fields of the provider's own answers."""


class BilledModel:
    """A simulated model that appends the tokens of each of its answers to a file, also of a process that is killed."""

    def __init__(self, path, find_run=None):
        """`find_run` returns the name of the run that a request belongs to."""
        self._path, self._find_run = path, find_run
        self._simulator = Simulator(log=self._write)

    def _write(self, exchange):
        if exchange.answer.status == 200:
            usage = find_usage(exchange.answer.body)
            if self._find_run is not None:
                usage["run"] = self._find_run(exchange.body)
            with self._path.open("a") as file:
                file.write(json.dumps(usage) + "\n")

    def connect(self):
        model = find_model_by_name("sim:")
        transport = InProcessTransport(self._simulator.answer)
        return ModelConnection(model=model, codec=load_codec(model.endpoint.family), transport=transport)


def find_usage(body):
    """The usage of an answer, whole or streamed, with its id: the last event that has a usage has all counts."""
    if not body.startswith(b"event:"):
        reply = json.loads(body)
        return {**reply["usage"], "id": reply["id"]}
    data = [json.loads(line[5:]) for line in body.splitlines() if line.startswith(b"data:")]
    return {**[each["usage"] for each in data if "usage" in each][-1], "id": data[0]["message"]["id"]}


def read_bill(path):
    """The prices of all answers in the file."""
    lines = path.read_text().splitlines() if path.exists() else ()
    return [price_usage(json.loads(line)) for line in lines]


def price_usage(usage):
    return sum(usage[field] * usd for field, usd in USD_PER_MILLION.items()) / 1_000_000
