"""The models of an agent in order of preference, and the connections to them.

Each model is given by name, as a `Model`, or as a ready `ModelConnection`.  Invalid input is reported before
anything is sent.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from bridle.core.recovery.fallback import choose_first_model
from bridle.ports.clock import Clock
from bridle.providers.catalogue import find_key, missing_address
from bridle.run.budget.sources import BudgetPool
from bridle.transports.deadlines import Deadlines
from bridle.values.errors import MissingKey, MisuseError
from bridle.values.model import Model
from bridle.values.settings import Settings
from bridle.values.usage import Budget

from .model_connection import ModelConnection, connect_model, resolve_model
from .private_extras import NO_PRIVATE_EXTRAS, PrivateExtras

ModelLike = str | Model | ModelConnection


@dataclass(frozen=True)
class ModelChain:
    models: tuple[Model, ...]
    given_connections: dict[str, ModelConnection]
    """Connections passed by the caller, by model key."""
    extra_models: tuple[Model, ...] = ()
    """Models outside the chain, such as the summarizer."""

    @property
    def chain_models(self) -> tuple[Model, ...]:
        """The models for the settings: empty if there is only one."""
        return self.models if len(self.models) > 1 else ()

    def open_connections(
        self, clock: Clock, deadlines: Deadlines | None, extras: PrivateExtras = NO_PRIVATE_EXTRAS
    ) -> dict[str, ModelConnection]:
        """Connections by model key, which restore the `extras`; `skipped_models` have none."""
        skipped = {key for key, _ in self.skipped_models}
        connections = {
            model.model_key: self.given_connections.get(model.model_key)
            or connect_model(model, clock=clock, deadlines=deadlines)
            for model in (*self.models, *self.extra_models)
            if model.model_key not in skipped
        }
        if extras is NO_PRIVATE_EXTRAS:
            return connections
        return {key: each.with_extras(extras) for key, each in connections.items()}

    @property
    def skipped_models(self) -> tuple[tuple[str, str], ...]:
        """Models of the chain without a key or an address, with the reason; raises `MissingKey` if all are."""
        found = [(model, reason) for model in self.chain_models if (reason := self._missing_setting(model))]
        if found and len(found) == len(self.models):
            listed = "; ".join(reason for _, reason in found)
            has_addresses = not any(missing_address(model) for model in self.models)
            wanted = "a key" if has_addresses else "a key and an address"
            raise MissingKey(f"no model of the chain has {wanted}: {listed}")
        return tuple((model.model_key, reason) for model, reason in found)

    def _missing_setting(self, model: Model) -> str:
        if model.model_key in self.given_connections:
            return ""
        if reason := missing_address(model):
            return reason
        try:
            find_key(model, os.environ)
        except MissingKey as error:
            return str(error)
        return ""

    def check_price(self, budget: Budget | None, pool: BudgetPool, now: float) -> None:
        shared = (budget.session, budget.tenant) if budget is not None else ()
        limited = any(each is not None and each.usd is not None for each in (budget, *shared, pool))
        for model in (*self.models, *self.extra_models) if limited else ():
            if model.price is None or model.price.rates(0, now) is None:
                raise MisuseError(
                    f"no price is known for {model.name}, so a budget in dollars cannot be enforced;"
                    " use Budget(tokens=…) or add the price to the file named by $BRIDLE_MODELS"
                )


def make_model_chain(
    given: ModelLike | Sequence[ModelLike], deadlines: Deadlines | None, summarizer: Model | None = None
) -> ModelChain:
    each = [given] if isinstance(given, str | Model | ModelConnection) else given
    if not each:
        raise MisuseError("no model was given; name at least one, such as 'sim:'")
    if not isinstance(each, Sequence):
        raise MisuseError(f"a model is a name such as 'sim:', a Model or a ModelConnection, not {given!r}")
    # A chain skips a model without an address; a single model must have one.
    models = tuple(resolve_model(one, needs_address=len(each) == 1) for one in each)
    connections = {one.model.model_key: one for one in each if isinstance(one, ModelConnection)}
    if connections and deadlines is not None:
        raise MisuseError(
            "a ModelConnection has its own deadlines; set them on its transport, or name the model"
        )
    keys = [model.model_key for model in models]
    if repeated := [key for at, key in enumerate(keys) if key in keys[:at]]:
        raise MisuseError(f"{repeated[0]} is in the chain twice; a failed model is not tried again")
    extra = (summarizer,) if summarizer is not None else ()
    return ModelChain(models=models, given_connections=connections, extra_models=extra)


def settings_for_first_model(
    settings: Settings, connections: dict[str, ModelConnection], now: float
) -> Settings:
    """The settings of a new prompt: those of the first healthy model that has a key."""
    return choose_first_model(
        settings, lambda model: connections[model.model_key].breakers.is_healthy(model, now)
    )
