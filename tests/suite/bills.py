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

    def __init__(self, path):
        self._path = path
        self._simulator = Simulator(log=self._write)

    def _write(self, exchange):
        if exchange.answer.status == 200:
            with self._path.open("a") as file:
                file.write(json.dumps(json.loads(exchange.answer.body)["usage"]) + "\n")

    def connect(self):
        model = find_model_by_name("sim:")
        transport = InProcessTransport(self._simulator.answer)
        return ModelConnection(model=model, codec=load_codec(model.endpoint.family), transport=transport)


def read_bill(path):
    """The prices of all answers in the file."""
    lines = path.read_text().splitlines() if path.exists() else ()
    return [price_usage(json.loads(line)) for line in lines]


def price_usage(usage):
    return sum(usage[field] * usd for field, usd in USD_PER_MILLION.items()) / 1_000_000
