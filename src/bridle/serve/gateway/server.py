"""The models, keys and tenants of a gateway, behind every wire.

Each key has an agent of its own for each model, because a key has a budget of its own (`StoredBudget`).
"""

import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request as HttpRequestIn

from bridle.config.tool_loader import load_reference
from bridle.core.context.model_constraints import apply_model_constraints
from bridle.providers import load_codec
from bridle.providers.catalogue import find_key, missing_address
from bridle.run.agent import Agent
from bridle.run.budget.stored import StoredBudget
from bridle.run.context.resources import StoreLike
from bridle.run.context.run_options import override_parts
from bridle.serve.app import Mount, make_host_app, make_wire_mounts
from bridle.serve.health import make_health_routes
from bridle.serve.host import AgentHost
from bridle.serve.options import ServeOptions
from bridle.serve.security import find_token
from bridle.serve.wires.endpoints import ServedModel, WireServer
from bridle.serve.wires.options import ClientOptions
from bridle.serve.wires.turn import WireCaller
from bridle.values.errors import Failure, MissingKey, ProviderError
from bridle.values.model import Model
from bridle.values.request import Request
from bridle.values.settings import KeepRaw
from bridle.values.usage import Budget, Limits

from .settings import OWN_TENANT_PREFIX, GatewayKey, GatewayModel, GatewaySettings

NO_LIMITS = Limits()
KEY_POOL_PREFIX = "key:"


class GatewayServer(WireServer):
    def __init__(self, host: AgentHost, settings: GatewaySettings, folder: Path | None = None) -> None:
        super().__init__(host)
        self._settings = settings
        self._hooks = tuple(load_reference(_place_reference(name, folder), folder) for name in settings.hooks)
        self._agents: dict[tuple[str, str], tuple[str, Agent[Any, Any]]] = {}

    def list_models(self, caller: WireCaller) -> tuple[str, ...]:
        key = self._settings.keys.get(caller.name)
        allowed = key.models if key is not None else ()
        # guard: gateway-key-models
        return tuple(name for name in self._settings.models if not allowed or name in allowed)

    def find_model(self, name: str, caller: WireCaller) -> ServedModel:
        names = self.list_models(caller)
        found = name if name in names else names[0] if len(names) == 1 else ""
        if not found:
            known = f"there are: {', '.join(names)}"
            message = f"The model `{name}` does not exist or your key may not use it; {known}"
            raise ProviderError(Failure(kind="not_found", message=message, status=404))
        agent = self._find_agent(found, caller.name)
        return ServedModel(found, agent, carries_all=True, is_strict=self._settings.strict)

    def identify(self, request: HttpRequestIn) -> WireCaller:
        if not self._settings.keys:
            return WireCaller()
        found = self._settings.find_key(find_token(Headers(scope=request.scope)))
        if found is None:
            raise ProviderError(
                Failure(kind="unauthorized", message="The key is not known here.", status=401)
            )
        name, key = found
        return WireCaller(name, key.tenant or OWN_TENANT_PREFIX + name)

    def list_losses(self, model: ServedModel, request: Request, options: ClientOptions) -> tuple[str, ...]:
        """List the options that the first model of the chain would not get as the client sent them."""
        settings = override_parts(model.agent.parts, options.run).settings
        codec = load_codec(settings.model.endpoint.family)
        noted = apply_model_constraints(settings, settings.tool_choice).notes
        sent = replace(request, model=settings.model, tools=settings.tools, output=settings.output, extras=())
        unsent = codec.list_unsent_media(sent.messages, settings.model)
        return (*noted, *codec.list_losses(sent), *unsent)

    def _find_agent(self, model: str, key: str) -> Agent[Any, Any]:
        """The agent of a model and a key; another one in each period of the key's budget."""
        entry = self._settings.keys.get(key)
        pool = KEY_POOL_PREFIX + key + (name_period(entry.period, time.time()) if entry is not None else "")
        known, agent = self._agents.get((model, key), ("", None))
        if agent is None or known != pool:
            chain = self._settings.models[model]
            made = make_gateway_agent(model, chain, entry, pool, self._settings, self._hooks)
            agent = self.host.bind(model, made)
            self._agents[model, key] = pool, agent
        return agent


def name_period(period: Literal["", "day", "month"], now: float) -> str:
    """End of the name of a budget in the period of this time; empty without a period."""
    day = datetime.fromtimestamp(now, UTC).date().isoformat()
    return {"": "", "day": f":{day}", "month": f":{day[:7]}"}[period]


def make_gateway_agent(
    name: str,
    model: GatewayModel,
    key: GatewayKey | None,
    pool_name: str,
    settings: GatewaySettings,
    hooks: tuple[Any, ...] = (),
) -> Agent[Any, Any]:
    """An agent that changes nothing: no tools, no instructions, no second try of an answer, no compaction."""
    limits = key.budget if key is not None else NO_LIMITS
    pool = None
    # guard: gateway-key-budget
    if limits != NO_LIMITS:
        pool = StoredBudget(
            name=pool_name,
            usd=limits.usd,
            tokens=limits.tokens,
            steps=limits.steps,
            tool_calls=limits.tool_calls,
            period=limits.period,
            zone=limits.zone,
        )
    tenant = settings.tenants.get(key.tenant) if key is not None else None
    shared = tenant.budget if tenant is not None and tenant.budget != NO_LIMITS else None
    return Agent(
        list(model.chain),
        name=name,
        hooks=hooks,
        pool=pool,
        budget=Budget(steps=None, tenant=shared),
        max_tokens=model.max_tokens,
        reprompts_max=0,
        repeats_max=None,
        compaction=None,
        result_characters=None,
        keep_raw=KeepRaw(request=True) if settings.keep_raw else None,
    )


def list_missing_keys(settings: GatewaySettings) -> tuple[str, ...]:
    """The models of which no provider of the chain has a key or an address, one sentence each."""
    problems = []
    for name, model in settings.models.items():
        models = make_gateway_agent(name, model, None, "", settings).parts.model_chain.models
        missing = [reason for each in models if (reason := _find_missing(each))]
        if len(missing) == len(models):
            problems.append(f"[models.{name}]: {'; '.join(missing)}")
    return tuple(problems)


def _find_missing(model: Model) -> str:
    try:
        find_key(model, os.environ)
    except MissingKey as error:
        return str(error)
    return missing_address(model)


def make_gateway_app(
    settings: GatewaySettings,
    *,
    store: StoreLike = None,
    options: ServeOptions | None = None,
    folder: Path | None = None,
) -> Starlette:
    """The application of a gateway; the SHA-256 of its keys are those that requests may carry."""
    host = make_gateway_host(settings, store=store, options=options)
    return make_gateway_host_app(host, GatewayServer(host, settings, folder))


def make_gateway_host(
    settings: GatewaySettings, *, store: StoreLike = None, options: ServeOptions | None = None
) -> AgentHost:
    """The host of a gateway; nothing waits for a run whose process ended, so none is resumed."""
    digests = tuple(key.sha256 for key in settings.keys.values())
    chosen = replace(options or ServeOptions(), key_digests=digests, resumes_runs=False)
    return AgentHost({}, store=store, options=chosen)


def make_gateway_host_app(host: AgentHost, server: GatewayServer) -> Starlette:
    return make_host_app(host, [Mount("/health", make_health_routes), *make_wire_mounts(server)])


def _place_reference(reference: str, folder: Path | None) -> str:
    """The reference to code; a path starts at the folder of the gateway's file."""
    path, colon, name = reference.partition(":")
    return f"{folder / path}{colon}{name}" if folder is not None and path.endswith(".py") else reference
