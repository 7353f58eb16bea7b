"""Tenants: on whose behalf a session is held.

A session belongs to the tenant of its first prompt, the tenant without a name included.  Another tenant can
neither go on in it nor fork, answer or read it, unless the caller says so: `tenant=Across("globex")`.
"""


class Across(str):
    """A tenant's name, and the caller's word that the session may be another's; it is recorded."""

    __slots__ = ()
