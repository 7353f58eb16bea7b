"""The models an agent may ask, and the lines to them.

Given are one model or several in order of preference, each by name, as a value, or as a line that somebody
has already laid.  What is given wrong is said before anything is sent.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from ..core.fallback import begun_with
from ..ports.clock import Clock
from ..providers.catalogue import key, missing_address
from ..transports.deadlines import Deadlines
from ..values.errors import MissingKey, MisuseError
from ..values.model import Model
from ..values.settings import Settings
from ..values.usage import Budget
from .line import Line, connect, model_of
from .reserving import Pool

ModelLike = str | Model | Line


@dataclass(frozen=True)
class Lineup:
    models: tuple[Model, ...]
    laid: dict[str, Line]
    """Lines that were given, by the seat they lead to."""
    beside: tuple[Model, ...] = ()
    """Models that are asked for something else than to go on."""

    @property
    def rest(self) -> tuple[Model, ...]:
        """What goes into the settings: nothing, when there is no choice."""
        return self.models if len(self.models) > 1 else ()

    def lines(self, clock: Clock, deadlines: Deadlines | None) -> dict[str, Line]:
        """The lines there are, by seat; a model that is `skipped` has none."""
        without = {seat for seat, _ in self.skipped}
        return {
            model.seat: self.laid.get(model.seat) or connect(model, clock=clock, deadlines=deadlines)
            for model in (*self.models, *self.beside)
            if model.seat not in without
        }

    @property
    def skipped(self) -> tuple[tuple[str, str], ...]:
        """Models of the chain without a key or an address, with the reason; `MissingKey` when all are."""
        found = [(model, reason) for model in self.rest if (reason := self._missing_setting(model))]
        if found and len(found) == len(self.models):
            listed = "; ".join(reason for _, reason in found)
            has_addresses = not any(missing_address(model) for model in self.models)
            wanted = "a key" if has_addresses else "a key and an address"
            raise MissingKey(f"no model of the chain has {wanted}: {listed}")
        return tuple((model.seat, reason) for model, reason in found)

    def _missing_setting(self, model: Model) -> str:
        if model.seat in self.laid:
            return ""
        if reason := missing_address(model):
            return reason
        try:
            key(model, os.environ)
        except MissingKey as error:
            return str(error)
        return ""

    def check_price(self, budget: Budget | None, pool: Pool, now: float) -> None:
        shared = (budget.session, budget.tenant) if budget is not None else ()
        limited = any(each is not None and each.usd is not None for each in (budget, *shared, pool))
        for model in (*self.models, *self.beside) if limited else ():
            if model.price is None or model.price.rates(0, now) is None:
                raise MisuseError(
                    f"no price is known for {model.name}, so a budget in dollars cannot be held;"
                    " use Budget(tokens=…) or add the price to the file named by $BRIDLE_MODELS"
                )


def lineup_of(
    given: ModelLike | Sequence[ModelLike], deadlines: Deadlines | None, beside: Model | None = None
) -> Lineup:
    each = [given] if isinstance(given, str | Model | Line) else list(given)
    if not each:
        raise MisuseError("no model was given; name at least one, such as 'sim:'")
    # A chain goes on without a model that has no address here; a model alone has to have one.
    models = tuple(model_of(one, spoken_to=len(each) == 1) for one in each)
    laid = {one.model.seat: one for one in each if isinstance(one, Line)}
    if laid and deadlines is not None:
        raise MisuseError("a line has deadlines of its own; give them to its transport, or name the model")
    seats = [model.seat for model in models]
    if twice := [seat for at, seat in enumerate(seats) if seat in seats[:at]]:
        raise MisuseError(f"{twice[0]} is in the chain twice; a model that failed is not asked again")
    return Lineup(models=models, laid=laid, beside=(beside,) if beside is not None else ())


def beginning(settings: Settings, lines: dict[str, Line], now: float) -> Settings:
    """The settings a prompt begins with: those of the first model with a key whose endpoint is well."""
    return begun_with(settings, lambda model: lines[model.seat].breakers.healthy(model, now))
