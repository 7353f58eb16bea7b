"""Options of a server: its limits, and the clients that it accepts."""

import ipaddress

from bridle.values.base import Value
from bridle.values.errors import MisuseError
from bridle.watchers.otel.metrics import MetricLabel

TOKEN_CHARACTERS_MIN = 16
BODY_BYTES_DEFAULT, BODIES_BYTES_DEFAULT = 32 * 1024 * 1024, 256 * 1024 * 1024
BODY_SECONDS_DEFAULT = 30.0
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
WILDCARDS = ("0.0.0.0", "::", "")  # noqa: S104 - compared with, never bound here


class ServeOptions(Value, kw_only=True):
    """Limits and accepted clients of a server; checked at the start (`check_options`)."""

    host: str = "127.0.0.1"
    """Address that it listens on; any other than loopback needs a token."""
    token: str = ""
    """Secret that every request must carry; empty for none."""
    key_digests: tuple[str, ...] = ()
    """SHA-256 of further secrets, in hex: a request that carries one of them is accepted too."""
    allowed_hosts: tuple[str, ...] = ()
    """Values of the Host header that are accepted besides loopback names and `host`."""
    allowed_origins: tuple[str, ...] = ()
    """Origins of web pages of other sites that may call the server, such as `https://app.example`."""
    trusts_callers: bool = False
    """True if an application in front decides who may call: host, token and origin are not checked here."""
    runs_max: int = 200
    """Runs at the same time; a further one is refused with 429."""
    viewers_max: int = 1_000
    """Open event streams; a further one is refused with 429."""
    requests_max: int = 500
    """Requests at the same time, event streams not counted; a further one is refused with 503."""
    body_bytes_max: int = BODY_BYTES_DEFAULT
    """Longest request body; a longer one is refused with 413."""
    bodies_bytes_max: int = BODIES_BYTES_DEFAULT
    """Bodies of all requests in progress together; a request beyond it is refused with 503."""
    body_seconds: float = BODY_SECONDS_DEFAULT
    """Time in which a request body must arrive."""
    request_seconds: float = 60.0
    """Time for a request that is not a stream; 504 afterwards. A run goes on."""
    send_seconds: float = 60.0
    """Time that a viewer may take no data before its connection is closed; it can resume."""
    shutdown_seconds: float = 10.0
    """Time for running steps to end at shutdown; runs that take longer are interrupted. All can be resumed."""
    resumes_runs: bool = True
    """Continue at the start the runs whose process ended."""

    metric_labels: tuple[MetricLabel, ...] = ()
    """Count runs, tokens, cost, calls, adoptions and open work by `agent`, `tenant` or both; of each, the first 100
    values."""

    @property
    def has_secret(self) -> bool:
        """True if every request must carry a secret."""
        return bool(self.token or self.key_digests)


def check_options(options: ServeOptions, *, has_identify: bool = False) -> ServeOptions:
    """The options; raises `MisuseError` for a limit that makes no sense and for a public server without a token."""
    if has_identify and options.has_secret:
        raise MisuseError("a server has a token for everyone or identities, not both: leave the token out")
    for name in options.__struct_fields__:
        value: object = getattr(options, name)
        if isinstance(value, int | float) and not isinstance(value, bool) and value <= 0:
            raise MisuseError(f"{name} must be above 0, not {value!r}")
    if options.token and len(options.token) < TOKEN_CHARACTERS_MIN:
        raise MisuseError(
            f"the token has fewer than {TOKEN_CHARACTERS_MIN} characters; this makes a good one:"
            " python -c 'import secrets; print(secrets.token_urlsafe())'"
        )
    if options.token and not (options.token.isascii() and options.token.isprintable()):
        raise MisuseError("the token must consist of printable ASCII characters")
    is_guarded = options.has_secret or has_identify or options.trusts_callers
    # guard: exposed-without-token
    if not is_guarded and not is_loopback(options.host):
        raise MisuseError(
            f"serving on {options.host or 'all addresses'} needs a token, because other machines can reach it: "
            "set $BRIDLE_SERVE_TOKEN, or give --token-file FILE or --tokens FILE"
        )
    for origin in options.allowed_origins:
        if "://" not in origin or origin.endswith("/") or "*" in origin:
            raise MisuseError(f"{origin!r} is not an origin; write it like https://app.example")
    return options


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
