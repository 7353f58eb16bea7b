"""The checks of every entry to a session: its name is one, and it belongs to the tenant that asks."""

from ..core.state import State
from ..values.errors import MisuseError
from ..values.tenancy import Across


def check_tenant(session: str, state: State, tenant: str | None) -> str:
    """Raises `MisuseError` when the session is another tenant's; None says nothing about a tenant.

    Gives the tenant that crosses the border by the caller's word; empty when there is no border to cross.
    """
    if tenant is None or state.owner is None or str(tenant) == state.owner:
        return ""
    if isinstance(tenant, Across):
        return str(tenant) or "(none)"
    named = f"tenant {str(tenant)!r}" if tenant else "the tenant without a name"
    raise MisuseError(
        f"session {session!r} does not belong to {named}; name the tenant it belongs to, or allow the access"
        " with tenant=Across(NAME) (--across-tenants)"
    )
