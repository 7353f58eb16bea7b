"""Write the parts of the documentation that come from tables.

    python docs/generate.py            rewrite them
    python docs/generate.py --check    only say which are stale, with exit code 1 if any is

A page is written by people.  Between the lines `<!-- begin NAME -->` and `<!-- end NAME -->`
stands what the function NAME returns.  To add one, write the function, list it in BLOCKS
and put the two lines into its page.
"""

import re
import sys
from calendar import day_name
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import cast

import msgspec
from generate_cookbook import cookbook, from_langgraph, from_openai_agents, from_openai_sdk, from_pydantic_ai
from generate_performance import (
    delta_costs,
    durable_steps,
    early_starts,
    long_runs,
    many_sessions,
    measured_on,
    memory_use,
    speed_targets,
    start_costs,
    step_calls,
    step_costs,
)
from generate_reference import (
    agent_file_keys,
    agent_parameters,
    chat_commands,
    commands,
    configured,
    events,
    exit_codes,
    phases,
    run_parameters,
    table,
    task_file_keys,
    value_types,
    variables,
    vendor_variables,
)
from guard_table import BOUNDARIES, Boundary, find_markers
from input_limits import INPUT_LIMITS
from outcome_tables import OUTCOME_POLICY, STOP_POLICY, STORE_ERROR_POLICY
from prompt_layers import PROMPT_LAYERS, STABILITY_LEVELS
from route_rights import routes
from seam_table import SEAMS

import bridle
from bridle.cli.linting.rules import LINT_RULES as LINTED
from bridle.core.cache.diagnosis import CACHE_ALARMS
from bridle.core.cache.report import CACHE_OUTCOMES, MISS_OUTCOMES
from bridle.core.compaction.strategies import STRATEGIES
from bridle.core.context.model_constraints import REQUEST_RULES as SETTLED
from bridle.core.recovery import breaker, failure_policy
from bridle.core.recovery.failure_policy import FAILURE_POLICY, RecoveryRow
from bridle.providers import load_codec
from bridle.providers.base_codec import BaseCodec
from bridle.providers.catalogue import find_model, known_models
from bridle.providers.schema.compiler import SchemaDialect, all_dialects
from bridle.providers.tables import load_tables
from bridle.providers.wire.hosted import find_hosted_form
from bridle.sim.families import (
    list_families,
    list_profiles,
    list_rules,
    signature_rules,
)
from bridle.sim.faults.catalogue import FAULTS
from bridle.sim.responder.script import DIRECTIVES
from bridle.sim.rules.engine import rules_as_markdown
from bridle.tools.hosted import CONCEPTS
from bridle.transports.deadlines import Deadlines
from bridle.values.model import Model
from bridle.values.settings import ATTEMPTS_DEFAULT
from bridle.values.usage import CONCEPT_COUNTS, PriceFactor, Rates

HERE = Path(__file__).parent


def endpoints() -> str:
    rows = load_tables().endpoints
    return table(
        ["vendor", "wire family", "models", "answers at", "key", "base URL"],
        [
            [
                f"`{name}:`",
                row.family,
                _words([*row.models, *(["others"] if row.others else [])], otherwise="any"),
                f"`{row.base_url}`".replace("|", "\\|"),
                _names(row.key_env) + (", or none" if row.key_optional else ""),
                _names(row.base_url_env),
            ]
            for name, row in rows.items()
            if not row.simulated
        ],
    )


def schema_dialects() -> str:
    return table(
        ["dialect", "where", "words", "references", "must", "at most"],
        [
            [
                f"`{row.name}`",
                row.about,
                f"{len(row.keywords)}" if row.keywords else "all",
                _references(row),
                _words(_demands(row)),
                _words(_limits(row)),
            ]
            for row in all_dialects()
        ],
    )


def _references(row: SchemaDialect) -> str:
    circles = {"free": "circles too", "optional": "circles through optional fields", "none": "no circles"}
    return f"{'written out' if row.references == 'inline' else 'kept'}, {circles[row.recursion]}"


def _demands(row: SchemaDialect) -> list[str]:
    said = {
        "an object at the top": row.root_object,
        f"no {', '.join(row.root_refused)} at the top": bool(row.root_refused),
        "plain names at the top": bool(row.root_names),
        "a type everywhere": row.typed,
        "no fields but the named": row.closed,
        "every field required": row.all_required,
        "types in capitals": row.types == "upper",
        "no `const`": not row.const or (bool(row.keywords) and "const" not in row.keywords),
        "enums of strings": row.enums == "strings",
        f"{len(row.formats or ())} formats": row.formats is not None,
        "`items` in arrays": row.array_items,
    }
    return [words for words, holds in said.items() if holds]


def _limits(row: SchemaDialect) -> list[str]:
    counted = {
        "levels": row.depth_max, "fields": row.properties_max, "enum values": row.enum_values_max,
        "characters": row.characters_max,
        "optional fields": row.optional_max, "unions": row.unions_max,
    }  # fmt: skip
    return [f"{most:,} {what}" for what, most in counted.items() if most is not None]


def _each() -> list[Model]:
    """Each model once, at the first endpoint that serves it."""
    tables = load_tables()
    first = {line: name for name, row in reversed(tables.endpoints.items()) for line in row.models}
    names = {f"{vendor}:{name}" for line, vendor in first.items() for name in tables.model_groups[line].ids}
    return [model for model in known_models() if model.name in names]


def models() -> str:
    return table(
        ["model", "context", "output", "thinking", "effort", "forced tools"],
        [
            [
                f"`{model.name}`",
                _count(model.abilities.context_tokens),
                _count(model.abilities.output_tokens),
                _words(model.abilities.thinking),
                _words(model.abilities.efforts),
                "yes" if model.abilities.forced_tools else "no",
            ]
            for model in _each()
        ],
    )


def prices() -> str:
    return table(
        ["model", "prompt", "input", "output", "cache read", "cache write, 5 min", "1 h"],
        [
            [f"`{model.name}`", *_rates(model, tier)]
            for model in _each()
            if model.price
            for tier in model.price.tiers
        ],
    )


def hosted_tools() -> str:
    """Each concept at each endpoint that has it: the declaration, the models and the price."""
    rows: list[list[str]] = []
    for concept in CONCEPTS:
        for endpoint in load_tables().endpoints:
            found = [model for model in known_models() if model.endpoint.name == endpoint]
            found = found or [_example(endpoint)] if load_tables().endpoints[endpoint].family else []
            having = [model for model in found if concept in dict(model.abilities.hosted)]
            forms = list(dict.fromkeys(_hosted_type(concept, model) for model in having))
            if having:
                which = "all" if len(having) == len(found) else f"{len(having)} of {len(found)}"
                enforced = dict(having[0].abilities.hosted)[concept]
                told = dict.fromkeys(_hosted_price(concept, model) for model in having)
                rows.append(
                    [
                        f"`{concept}`",
                        f"`{endpoint}:`",
                        ", ".join(forms),
                        which,
                        _words(enforced),
                        "; ".join(told),
                    ]
                )
    return table(["concept", "endpoint", "declared as", "models", "enforces", "price of a use"], rows)


def _example(endpoint: str) -> Model:
    return find_model(f"sim:{endpoint}/some-model", environ={})


def _hosted_type(concept: str, model: Model) -> str:
    codec = cast("BaseCodec", load_codec(model.endpoint.family))
    form = find_hosted_form(codec.hosted_forms(model), concept, model)
    assert form is not None
    declared = msgspec.json.decode(form.json)
    return f"`{declared.get('type') or next(iter(declared))}`"


def _hosted_price(concept: str, model: Model) -> str:
    count = CONCEPT_COUNTS.get(concept)
    if count is None:
        return "tokens only"
    rate = model.price.hosted_rate(count, None) if model.price else None
    if rate is None:
        return "unknown"
    unit = "reply" if rate.per_reply else "container" if count == "containers" else "use"
    return f"${rate.usd:f} per {unit}" if rate.usd else "tokens only"


def factors() -> str:
    """Factors on the rates of a model; models with the same factors share a row."""
    by_factors: dict[tuple[str, ...], list[str]] = {}
    for model in _each():
        told = tuple(_factor(each) for each in model.price.factors) if model.price else ()
        if told:
            by_factors.setdefault(told, []).append(f"`{model.name}`")
    rows = [[", ".join(names), "; ".join(told)] for told, names in by_factors.items()]
    return table(["models", "every rate is multiplied by"], rows)


def rules() -> str:
    """Every family's rules in the order they are checked; those of other servers after the provider's own."""
    return "\n".join(_rules_by_profile(family) for family in list_families())


def _rules_by_profile(family: str) -> str:
    own, *others = list_profiles(family)
    shown = {rule.id for rule in list_rules(family, own.name)}
    parts = [f"## {family}\n\n{rules_as_markdown(list_rules(family, own.name))}\n"]
    for profile in others:
        every = list_rules(family, profile.name)
        fresh = [rule for rule in every if rule.id not in shown]
        shared = _names([rule.id for rule in every if rule.id in shown])
        parts.append(
            f"### {family}, {profile.name}\n\n{profile.description.capitalize()}.\nFrom above: {shared}.\n"
        )
        parts += [f"{rules_as_markdown(fresh)}\n"] if fresh else []
        shown |= {rule.id for rule in fresh}
    return "\n".join(parts)


def signatures() -> str:
    """Rules of every family about the signatures it gave out."""
    tables = ((family, signature_rules(family)) for family in list_families())
    return "\n".join(
        f"## {family}: signatures\n\n{rules_as_markdown(rules)}\n" for family, rules in tables if rules
    )


def conflicts() -> str:
    """Options that a model would reject, and what is sent instead."""
    return table(["requested", "sent"], [[asked, then] for asked, then, _, _ in SETTLED])


def failures() -> str:
    """Every way a model call can fail."""
    heads = ["failure", "action", "details", "for example", "then the next model"]
    more = {name: ["yes" if row.can_switch_model else "no"] for name, row in FAILURE_POLICY.items()}
    return table(heads, [[*_row(name, row), *more[name]] for name, row in FAILURE_POLICY.items()])


def limits() -> str:
    """Limits of retries, waits and circuit breakers."""
    return table(
        ["limit", "value"],
        [
            ["attempts for one reply, per model (`attempts_max`)", f"{ATTEMPTS_DEFAULT}"],
            ["backoff ceiling of the first wait", f"{failure_policy.WAIT_SECONDS_FIRST:g} s"],
            ["backoff ceiling of any wait", f"{failure_policy.WAIT_SECONDS_MAX:g} s"],
            ["longest wait that a provider may ask for", f"{failure_policy.RETRY_AFTER_SECONDS_MAX:g} s"],
            ["consecutive failures that open a circuit breaker", f"{breaker.FAILURES_MAX}"],
            ["pause of an open breaker, first", f"{breaker.OPEN_SECONDS_FIRST:g} s"],
            ["pause of an open breaker, at most", f"{breaker.OPEN_SECONDS_MAX:g} s"],
            ["breaker pauses that one reply waits for", f"{failure_policy.BREAKER_WAITS_MAX}"],
        ],
    )


def input_limits() -> str:
    """Limits of data from outside, and the test that goes beyond each."""
    return table(
        ["data from outside", "limit", "name", "test beyond it"],
        [
            [
                each.entry,
                f"{each.value:,g} {each.unit}" if each.value < 10**6 else f"{each.value:,} {each.unit}",
                f"`{each.constant}`",
                f"`tests/{each.test}`",
            ]
            for each in INPUT_LIMITS
        ],
    )


def guards() -> str:
    """Each risk, the marked statements that stop it, and the tests that fail without them."""
    package = Path(bridle.__file__).parent
    files = {
        name: f"src/bridle/{place.path.relative_to(package).as_posix()}"
        for name, places in find_markers(package).items()
        for place in places
    }
    return table(
        ["source", "risk", "guard", "test"],
        [[each.source, each.risk, _guards_of(each, files), _tests_of(each)] for each in BOUNDARIES],
    )


def _guards_of(boundary: Boundary, files: Mapping[str, str]) -> str:
    """The markers of a boundary, after each file that they stand in."""
    by_file: dict[str, list[str]] = {}
    for marker in dict.fromkeys(guard.marker for guard in boundary.guards):
        by_file.setdefault(files[marker], []).append(f"`{marker}`")
    return "; ".join(f"`{file}`: {_words(markers)}" for file, markers in by_file.items())


def _tests_of(boundary: Boundary) -> str:
    tests = [test.partition("[")[0] for guard in boundary.guards for test in guard.tests]
    return _words([f"`tests/{test}`" for test in dict.fromkeys(tests)])


def deadlines() -> str:
    """Deadlines of one request."""
    meanings = {
        "connect_seconds": "name lookup, connection and TLS together",
        "first_byte_seconds": "from the request to the first byte of the answer: a model may think this long",
        "idle_seconds": "between two chunks of an answer; any byte counts",
        "total_seconds": "from the request to the last byte; not retried after that",
    }
    usual = Deadlines()
    return table(
        ["deadline", "default", "limits"],
        [[f"`{name}`", f"{getattr(usual, name):g} s", meanings[name]] for name in usual.__struct_fields__],
    )


def outcomes() -> str:
    """Every way a tool call can end."""
    return table(_VERDICT, [_row(name, row) for name, row in OUTCOME_POLICY.items()])


def stops() -> str:
    """Every reason a model can stop for."""
    return table(_VERDICT, [_row(name, row) for name, row in STOP_POLICY.items()])


def stores() -> str:
    """Every way a store can fail."""
    return table(_VERDICT, [_row(kind.__name__, row) for kind, row in STORE_ERROR_POLICY.items()])


def directives() -> str:
    """Every directive a prompt may hold."""
    return table(["directive", "meaning"], [[f"`{form}`", meaning] for form, meaning in DIRECTIVES.values()])


def faults() -> str:
    """Every fault that the simulator can inject."""
    return table(
        ["fault", "what happens"], [[f"`{each.name}`", each.description] for each in FAULTS.values()]
    )


def cache_verdicts() -> str:
    rows = [
        [f"`{name}`", what, "yes" if name in MISS_OUTCOMES else "no"] for name, what in CACHE_OUTCOMES.items()
    ]
    return table(["outcome", "meaning", "a miss"], rows)


def cache_alarms() -> str:
    rows = [
        [f"`{each.name}`", str(each.call_count), f"{each.rate_below:.0%}", f"{each.missed_tokens_min:,}"]
        for each in CACHE_ALARMS
    ]
    return table(["rule", "latest calls", "read less than", "missed at least, tokens"], rows)


def lint_rules() -> str:
    return table(
        ["id", "rule", "finds", "why it costs", "instead"],
        [[rule.id, f"`{rule.name}`", rule.what, rule.why, rule.instead] for rule in LINTED],
    )


def layers() -> str:
    """The layers of a prompt, from first to last."""
    return table(
        ["layer", "shared by", "content", "changes when", "breakpoint after it"],
        [
            [f"`{row.name}`", row.stability, row.content, row.changed_by, "yes" if row.has_breakpoint else ""]
            for row in PROMPT_LAYERS
        ],
    )


def stabilities() -> str:
    return table(["shared by", "meaning"], [[name, what] for name, what in STABILITY_LEVELS.items()])


def strategies() -> str:
    return table(
        ["strategy", "what happens", "what stays"],
        [[f"`{row.name}`", row.effect, row.keeps] for row in STRATEGIES],
    )


def seams() -> str:
    return table(["feature", "with", "shown"], [[one, other, text] for (one, other), text in SEAMS.items()])


BLOCKS: list[tuple[str, Callable[[], str]]] = [
    ("evidence.md", measured_on),
    ("evidence.md", speed_targets),
    ("evidence.md", step_costs),
    ("evidence.md", step_calls),
    ("evidence.md", delta_costs),
    ("evidence.md", long_runs),
    ("evidence.md", many_sessions),
    ("evidence.md", durable_steps),
    ("evidence.md", early_starts),
    ("evidence.md", memory_use),
    ("evidence.md", start_costs),
    ("reference/routes.md", routes),
    ("caching.md", cache_verdicts),
    ("cookbook.md", cookbook),
    ("migrating.md", from_pydantic_ai),
    ("migrating.md", from_openai_agents),
    ("migrating.md", from_langgraph),
    ("migrating.md", from_openai_sdk),
    ("compaction.md", strategies),
    ("caching.md", cache_alarms),
    ("reference/agent.md", agent_parameters),
    ("reference/agent.md", run_parameters),
    ("reference/agent.md", value_types),
    ("chat.md", chat_commands),
    ("reference/cli.md", commands),
    ("configuration.md", configured),
    ("configuration.md", agent_file_keys),
    ("evals.md", task_file_keys),
    ("reference/environment.md", variables),
    ("reference/environment.md", vendor_variables),
    ("reference/environment.md", exit_codes),
    ("reference/events.md", events),
    ("reference/events.md", phases),
    ("lint.md", lint_rules),
    ("memory.md", layers),
    ("memory.md", stabilities),
    ("models.md", endpoints),
    ("models.md", models),
    ("models.md", prices),
    ("models.md", factors),
    ("hosted.md", hosted_tools),
    ("models.md", conflicts),
    ("recovery.md", failures),
    ("recovery.md", limits),
    ("limits.md", input_limits),
    ("guards.md", guards),
    ("seams.md", seams),
    ("recovery.md", deadlines),
    ("recovery.md", stops),
    ("recovery.md", outcomes),
    ("recovery.md", stores),
    ("simulator.md", directives),
    ("simulator.md", faults),
    ("schemas.md", schema_dialects),
    ("reference/simulator-rules.md", rules),
    ("reference/simulator-rules.md", signatures),
]


def main(arguments: Sequence[str], folder: Path = HERE) -> int:
    stale = []
    for name, function in BLOCKS:
        page = folder / name
        before = page.read_text(encoding="utf-8")
        after = _filled(before, function.__name__, function(), name)
        if after == before:
            continue
        stale.append(f"{name} ({function.__name__})")
        if "--check" not in arguments:
            page.write_text(after, encoding="utf-8")
    if stale and "--check" in arguments:
        sys.stderr.write(f"stale: {', '.join(stale)}; run: python docs/generate.py\n")
        return 1
    return 0


def _filled(page: str, block: str, text: str, name: str) -> str:
    pattern = re.compile(rf"(<!-- begin {block} -->\n).*?(<!-- end {block} -->)", re.DOTALL)
    if not pattern.search(page):
        raise SystemExit(f"docs/{name} has no lines `<!-- begin {block} -->` and `<!-- end {block} -->`")
    return pattern.sub(lambda found: f"{found[1]}\n{text}\n{found[2]}", page)


def _rates(model: Model, tier: Rates) -> list[str]:
    assert model.price is not None
    above = f"over {_count(tier.above_prompt_tokens)}" if tier.above_prompt_tokens else "any"
    longer = [each.above_prompt_tokens for each in model.price.tiers if each.above_prompt_tokens]
    if longer and not tier.above_prompt_tokens:
        above = f"up to {_count(min(longer))}"
    if tier.valid_from:
        above += f", from {_day(tier.valid_from)}"
    if tier.valid_until:
        above += f", before {_day(tier.valid_until)}"
    columns = (tier.input, tier.output, tier.cache_read, tier.cache_write, tier.cache_write_1h)
    return [above, *map(_dollars, columns)]


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).date().isoformat()


def _factor(each: PriceFactor) -> str:
    if each.hours:
        days = ""
        if each.days:
            days = ", " + " to ".join(day_name[day - 1] for day in each.days)
        return f"{each.factor:f} from {each.hours[0]}:00 to {each.hours[1]}:00 UTC{days}"
    cached = f" ({each.cache_factor:f} for reads of the cache)" if each.cache_factor is not None else ""
    return f"{each.factor:f}{cached} if served as `{each.term}`"


def _dollars(amount: Decimal | None) -> str:
    if amount is None:
        return "unknown"
    cents = amount.quantize(Decimal("0.01"))
    return f"{cents if cents == amount else amount.normalize():f}"


def _count(tokens: int) -> str:
    millions = tokens / 1_000_000
    return f"{millions:.3g} M" if millions >= 1 else f"{round(tokens / 1_000)} k"


_VERDICT = ["what happened", "action", "details", "for example"]
_CALLED = {"retry": "retry", "repair": "repair, retry once", "tell": "tell the model", "stop": "stop"}


def _row(name: str, row: RecoveryRow) -> list[str]:
    return [f"`{name}`", _CALLED[row.action], row.description, row.example.replace("|", "\\|")]


def _words(words: Sequence[str], otherwise: str = "none") -> str:
    return ", ".join(words) or otherwise


def _names(variables: Sequence[str]) -> str:
    return _words([f"`{name}`" for name in variables])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
