"""Connects to a Temporal server and registers the search attributes of runs; a failure is one line with the remedy."""

import asyncio
import logging
import sys
import threading
import time
from pathlib import Path

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client, TLSConfig
from temporalio.service import RPCError, RPCStatusCode

from bridle.values.errors import EngineFailed, MisuseError

from .workflow import AGENT, COST, STATE, TENANT

LOG = logging.getLogger("bridle")
TYPES = {
    AGENT.name: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    TENANT.name: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    STATE.name: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    COST.name: IndexedValueType.INDEXED_VALUE_TYPE_DOUBLE,
}
BY_HAND = " ".join(f"--name {name} --type {'Double' if name == COST.name else 'Keyword'}" for name in TYPES)
CONNECT_SECONDS = 15.0
# not from outside: time that we wait for our own work
CALLBACKS_SECONDS_MAX = 10.0
NOT_REACHED = (
    "cannot reach Temporal at {host}: {why}; check --temporal, or start a server on this machine:"
    " temporal server start-dev"
)


async def connect_temporal(
    host: str,
    namespace: str = "default",
    *,
    tls: bool = False,
    ca: Path | None = None,
    certificate: Path | None = None,
    key: Path | None = None,
    api_key: str = "",
) -> Client:
    """A client of the server; raises `EngineFailed` if it cannot be reached."""
    if (certificate is None) != (key is None):
        raise MisuseError("a client certificate and its key belong together: --tls-cert FILE --tls-key FILE")
    if not namespace.strip():
        raise MisuseError("the namespace of the Temporal server has no name: --namespace NAME")
    config: TLSConfig | bool = tls or bool(api_key)
    if ca is not None or certificate is not None:
        read = [_read(path) for path in (ca, certificate, key)]
        config = TLSConfig(server_root_ca_cert=read[0], client_cert=read[1], client_private_key=read[2])
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await _check_port(host)
            client = await Client.connect(host, namespace=namespace, tls=config, api_key=api_key or None)
            await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=namespace))
    except TimeoutError:
        raise EngineFailed(NOT_REACHED.format(host=host, why=f"no answer in {CONNECT_SECONDS:g} s")) from None
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            made = f"temporal operator namespace create {namespace}"
            raise EngineFailed(
                f"Temporal at {host} has no namespace {namespace!r}; create it: {made}"
            ) from None
        if error.status is not RPCStatusCode.PERMISSION_DENIED:  # workers need no right to describe it
            raise EngineFailed(NOT_REACHED.format(host=host, why=error.message)) from None
    except (RuntimeError, ValueError) as error:
        why = str(error).removeprefix("Failed client connect: ").splitlines()[0][:200]
        raise EngineFailed(NOT_REACHED.format(host=host, why=why)) from None
    return client


def wait_for_callbacks() -> None:
    """Wait until no thread of the SDK runs Python code: one that does while the interpreter ends aborts the process."""
    deadline = time.monotonic() + CALLBACKS_SECONDS_MAX
    while _list_foreign_threads() and time.monotonic() < deadline:
        time.sleep(0.001)


def _list_foreign_threads() -> set[int]:
    return set(sys._current_frames()) - {thread.ident for thread in threading.enumerate() if thread.ident}


async def _check_port(host: str) -> None:
    """Raise `EngineFailed` if nothing listens there; the SDK would tell it in the words of its own libraries."""
    name, _, port = host.rpartition(":")
    if not name or not port.isdigit():
        raise MisuseError(
            f"the address of a Temporal server is HOST:PORT, such as 127.0.0.1:7233, not {host!r}"
        )
    try:
        _, writer = await asyncio.open_connection(name.strip("[]"), int(port))
    except OSError as error:
        raise EngineFailed(NOT_REACHED.format(host=host, why=error.strerror or str(error))) from None
    writer.close()


def _read(path: Path | None) -> bytes | None:
    try:
        return None if path is None else path.read_bytes()
    except OSError as error:
        raise MisuseError(f"cannot read {str(path)!r}: {error.strerror}") from None


async def register_attributes(client: Client) -> bool:
    """Register the attributes that the namespace lacks; False, with a warning, if that is not permitted."""
    operator, namespace = client.operator_service, client.namespace
    try:
        listed = await operator.list_search_attributes(ListSearchAttributesRequest(namespace=namespace))
        missing = {name: kind for name, kind in TYPES.items() if name not in listed.custom_attributes}
        if missing:
            request = AddSearchAttributesRequest(namespace=namespace, search_attributes=missing)
            await operator.add_search_attributes(request)
    except RPCError as error:
        if error.status is RPCStatusCode.ALREADY_EXISTS:
            return True  # another process was faster
        LOG.warning(
            "runs have no search attributes: the server did not let us register them (%s); an administrator can:"
            " temporal operator search-attribute create --namespace %s %s",
            error.message, namespace, BY_HAND,
        )  # fmt: skip
        return False
    return True
