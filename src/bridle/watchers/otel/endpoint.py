"""Reads where to send telemetry from the settings and the standard OTEL_* variables.

https://opentelemetry.io/docs/specs/otel/protocol/exporter/ lists the variables. A variable for one signal
(`OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`) takes precedence over the common one.
"""

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from bridle.values.errors import MisuseError

from .settings import Telemetry

ENDPOINT_DEFAULT = "http://localhost:4318"
PROTOCOL = "http/protobuf"
SERVICE_DEFAULT = "bridle"
TIMEOUT_SECONDS_DEFAULT = 10.0
PREFIX = "OTEL_EXPORTER_OTLP_"


class SignalEndpoint(NamedTuple):
    """The address of one signal (traces or metrics)."""

    url: str
    headers: dict[str, str]
    timeout_seconds: float
    compressed: bool
    certificate: str


class ExportSettings(NamedTuple):
    traces: SignalEndpoint | None
    """None if the signal is turned off."""
    metrics: SignalEndpoint | None
    resource: dict[str, str]
    queue_size: int
    batch_size: int
    delay_seconds: float
    metrics_seconds: float


def is_disabled(environment: Mapping[str, str]) -> bool:
    return environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def names_endpoint(environment: Mapping[str, str]) -> bool:
    """True if a variable names a receiver."""
    names = (f"{PREFIX}ENDPOINT", f"{PREFIX}TRACES_ENDPOINT", f"{PREFIX}METRICS_ENDPOINT")
    return any(environment.get(name, "").strip() for name in names)


def read_export_settings(settings: Telemetry, environment: Mapping[str, str]) -> ExportSettings:
    """Combine settings and environment; raises `MisuseError` for a value that cannot be used."""
    return ExportSettings(
        traces=_read_signal("traces", settings, environment),
        metrics=_read_signal("metrics", settings, environment) if settings.metrics else None,
        resource=_read_resource(settings, environment),
        queue_size=_read_number(environment, "OTEL_BSP_MAX_QUEUE_SIZE", 4_096),
        batch_size=_read_number(environment, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512),
        delay_seconds=_read_number(environment, "OTEL_BSP_SCHEDULE_DELAY", 1_000) / 1_000,
        metrics_seconds=_read_number(environment, "OTEL_METRIC_EXPORT_INTERVAL", 60_000) / 1_000,
    )


def _read_signal(signal: str, settings: Telemetry, environment: Mapping[str, str]) -> SignalEndpoint | None:
    if environment.get(f"OTEL_{signal.upper()}_EXPORTER", "otlp").strip() == "none":
        return None

    def read(name: str, default: str = "") -> str:
        specific = environment.get(f"{PREFIX}{signal.upper()}_{name}", "").strip()
        return specific or environment.get(f"{PREFIX}{name}", "").strip() or default

    protocol = read("PROTOCOL", PROTOCOL)
    if protocol != PROTOCOL:
        raise MisuseError(
            f"{PREFIX}PROTOCOL={protocol} is not supported; set it to {PROTOCOL} and use the receiver's HTTP port"
        )
    whole = environment.get(f"{PREFIX}{signal.upper()}_ENDPOINT", "").strip()
    base = settings.endpoint or environment.get(f"{PREFIX}ENDPOINT", "").strip() or ENDPOINT_DEFAULT
    url = whole if whole and not settings.endpoint else f"{base.rstrip('/')}/v1/{signal}"
    if "@" in urlsplit(url).netloc:
        raise MisuseError(
            "the telemetry endpoint holds a user or password, which warnings would show;"
            " send them in the header authorization: Telemetry(headers=…)"
        )
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise MisuseError(f"the telemetry endpoint must be a URL such as {ENDPOINT_DEFAULT}, not {url!r}")
    compression = read("COMPRESSION", "none")
    if compression not in ("gzip", "none"):
        raise MisuseError(f"{PREFIX}COMPRESSION={compression} is not supported; choose one of: gzip, none")
    timeout = read("TIMEOUT", f"{TIMEOUT_SECONDS_DEFAULT * 1_000:g}")
    return SignalEndpoint(
        url=url,
        headers=_parse_pairs(read("HEADERS"))
        | {name.lower(): value for name, value in settings.headers.items()},
        timeout_seconds=_parse_number(f"{PREFIX}TIMEOUT", timeout) / 1_000,
        compressed=compression == "gzip",
        certificate=read("CERTIFICATE"),
    )


def _read_resource(settings: Telemetry, environment: Mapping[str, str]) -> dict[str, str]:
    given = _parse_pairs(environment.get("OTEL_RESOURCE_ATTRIBUTES", ""), lower=False)
    name = settings.service_name or environment.get("OTEL_SERVICE_NAME", "").strip()
    return {"service.name": SERVICE_DEFAULT, **given, **({"service.name": name} if name else {})}


def _parse_pairs(text: str, *, lower: bool = True) -> dict[str, str]:
    """Read `a=1,b=2`, percent-encoded."""
    pairs = (item.partition("=") for item in text.split(",") if "=" in item)
    named = ((unquote(name.strip()), unquote(value.strip())) for name, _, value in pairs)
    return {name.lower() if lower else name: value for name, value in named}


def _read_number(environment: Mapping[str, str], name: str, default: int) -> int:
    given = environment.get(name, "").strip()
    return _parse_number(name, given) if given else default


def _parse_number(name: str, given: str) -> int:
    if not given.isdecimal() or not int(given):
        raise MisuseError(f"{name} must be a positive whole number, not {given!r}")
    return int(given)
