"""The files of deploy/ agree with the code: metrics, alerts and their runbook, commands, paths and routes of containers."""

import ast
import fnmatch
import json
import re
import shlex
import shutil
import subprocess
import tomllib
from typing import get_args

import pytest
import yaml

from bridle import Agent
from bridle.serve import ServeOptions
from bridle.serve.app import MOUNTS
from bridle.serve.guarded_route import GuardedRoute
from bridle.serve.host import AgentHost
from bridle.stores.memory import MemoryStore
from bridle.values.events import RunStop
from bridle.values.message import Outcome
from tests.suite.paths import ROOT

DEPLOY = ROOT / "deploy"
METRIC = re.compile(r"\bbridle_\w+")
MATCHER = re.compile(r'(\w+)(=~|=|!=)"([^"]*)"')
SHOWN = {
    "runs_total", "runs_live", "runs_waiting", "runs_orphaned", "calls_in_doubt", "tool_calls_total", "adoptions_total",
    "budget_use_bucket", "cost_usd_total", "first_token_seconds_bucket", "reply_seconds_bucket", "servers", "store_up",
}  # fmt: skip
"""What the dashboard has to show, each after `bridle_serve_`."""
VALUES = {
    "stop": set(get_args(RunStop)),
    "outcome": {*get_args(Outcome), "interrupted"},
    "reason": {"start", "server ended", "store failed"},
}
"""Values of labels that expressions may compare with."""
RULES = [
    rule for group in yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"] for rule in group["rules"]
]
DASHBOARD = json.loads((DEPLOY / "grafana.json").read_text())
EXPRESSIONS = {
    **{rule["alert"]: rule["expr"] for rule in RULES},
    **{
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in DASHBOARD["panels"]
        for target in panel["targets"]
    },
}
COMPOSE = yaml.safe_load((DEPLOY / "compose.yml").read_text())
SECRET_NAME = re.compile(r"PASSWORD|SECRET|TOKEN|KEY")
REQUIRED = re.compile(r"\$\{\w+:\?[^}]+\}")
"""A value that has to be in the environment."""


@pytest.fixture(scope="module")
def metrics():
    """Names of the samples that the metrics of a server have."""
    options = ServeOptions(metric_labels=("agent", "tenant"))
    host = AgentHost({"shop": Agent("sim:", name="shop")}, store=MemoryStore(), options=options)
    names = set()
    for line in host.metrics.render(host).splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            names |= (
                {f"{name}_{end}" for end in ("bucket", "sum", "count")} if kind == "histogram" else {name}
            )
    return names


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_expressions_name_metrics_and_values_that_servers_produce(name, metrics):
    expression = EXPRESSIONS[name]
    assert set(METRIC.findall(expression)) <= metrics
    assert METRIC.search(expression) and expression.count("(") == expression.count(")")
    for label, _, value in MATCHER.findall(expression):
        if label != "instance":
            assert set(value.split("|")) <= VALUES[label], f"{label} is never {value}"


def test_a_metric_that_no_server_produces_is_noticed(metrics):
    assert "bridle_serve_runs_lost" not in metrics and "bridle_serve_budget_use" not in metrics


def test_the_dashboard_shows_what_an_operator_needs():
    shown = {
        name
        for panel in DASHBOARD["panels"]
        for target in panel["targets"]
        for name in METRIC.findall(target["expr"])
    }
    assert {f"bridle_serve_{each}" for each in SHOWN} <= shown
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24
    variables = {each["name"] for each in DASHBOARD["templating"]["list"]}
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(panels))) - {"__rate_interval"} <= variables


def test_every_alert_has_a_section_in_the_runbook():
    runbook = (ROOT / "docs" / "runbook.md").read_text()
    sections = {part.partition("\n")[0]: part for part in runbook.split("\n## ")[1:]}
    alerts = [rule["alert"] for rule in RULES]
    assert len(alerts) == len(set(alerts))
    assert [title for title in sections if title.startswith("Bridle")] == alerts
    for rule in RULES:
        assert rule["annotations"]["runbook"] == f"docs/runbook.md#{rule['alert'].lower()}"
        assert rule["annotations"]["summary"] and rule["labels"]["severity"] in ("page", "ticket")
        named = METRIC.findall(rule["expr"])
        described = sections[rule["alert"]]
        assert all(name.removesuffix("_bucket") in described for name in named)


def test_the_rules_are_those_of_prometheus():
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed: the rules were only read as YAML")
    done = subprocess.run([program, "check", "rules", DEPLOY / "alerts.yml"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def read_instructions():
    """The instructions of the Containerfile with their words, continued lines joined."""
    text = re.sub(r"\\\n", " ", (DEPLOY / "Containerfile").read_text())
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines)]


def find_instruction(wanted):
    return [rest for name, rest in read_instructions() if name == wanted]


def test_the_image_copies_files_that_exist_and_that_the_build_is_sent():
    patterns = (DEPLOY / "Containerfile.dockerignore").read_text().splitlines()
    sent = {line[1:] for line in patterns if line.startswith("!")}
    copied = {
        source
        for given in find_instruction("COPY")
        if not given.startswith("--from=")
        for source in given.split()[:-1]
    }
    assert copied == sent and "*" in patterns
    assert all((ROOT / each).exists() for each in copied)


def test_the_image_installs_extras_of_the_project_in_the_versions_of_the_lock_file():
    (step,) = [rest for rest in find_instruction("RUN") if "pip install" in rest]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (extras,) = re.findall(r'"\.\[([\w,]+)\]"', step)
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    command = step.partition(" >")[0].replace(
        "requirements.lock", shlex.quote(str(ROOT / "requirements.lock"))
    )
    pinned = subprocess.run(command, shell=True, capture_output=True, text=True, check=True).stdout
    assert all(
        re.search(rf"(?m)^{name}==[\d.]+$", pinned) for name in ("starlette", "uvicorn", "asyncpg", "msgspec")
    )
    assert "\\" not in pinned and "hash" not in pinned


def list_options(program):
    """Options that a program of the platform takes."""
    calls = [node for node in ast.walk(ast.parse(program.read_text())) if isinstance(node, ast.Call)]
    names = [each.args[0] for each in calls if getattr(each.func, "attr", "") == "add_argument"]
    return {name.value for name in names if isinstance(name, ast.Constant)}


def test_commands_of_containers_are_programs_of_the_platform():
    (workdir,) = find_instruction("WORKDIR")[1:]
    assert f"examples/platform {workdir}" in find_instruction("COPY")
    commands = [json.loads(find_instruction("CMD")[-1])]
    commands += [each["command"] for each in COMPOSE["services"].values() if "command" in each]
    assert len(commands) == 2
    for python, program, *options in commands:
        path = ROOT / "examples" / "platform" / program
        assert python == "python" and path.exists()
        assert {each for each in options if each.startswith("--")} <= list_options(path)


def test_the_image_is_no_root_and_asks_a_route_that_exists():
    (user,) = find_instruction("USER")
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)
    host = AgentHost({"shop": Agent("sim:", name="shop")}, store=MemoryStore())
    made = [route for mount in MOUNTS for route in mount.make_routes(host)]
    routes = {route.path for route in made if isinstance(route, GuardedRoute)}
    (check,) = find_instruction("HEALTHCHECK")
    (path,) = re.findall(r"127\.0\.0\.1:8420(/[\w/]+)", check)
    assert path in routes
    ast.parse(json.loads(check.partition("CMD ")[2])[2])


def list_variables():
    """Names of variables that the programs of the platform and Bridle's store read."""
    programs = "".join(path.read_text() for path in (ROOT / "examples" / "platform").glob("*.py"))
    return {
        *re.findall(r'environ(?:\.get\(|\[)"(\w+)"', programs),
        "BRIDLE_APPROVAL_KEY_FILE",
        "PATH",
        "PGPASSWORD",
    }


def test_variables_of_containers_are_read_by_the_programs():
    names = set(re.findall(r"(\w+)=", find_instruction("ENV")[0]))
    names |= set(COMPOSE["x-platform"]["environment"])
    left = {name for name in names - list_variables() if not name.startswith("PYTHON")}
    assert {name for name in left if not fnmatch.fnmatch(name, "*_API_KEY")} == set()


def test_two_servers_share_one_database_and_no_secret_is_in_the_file():
    services = COMPOSE["services"]
    assert set(services) == {"postgres", "server-1", "server-2", "nightly"}
    servers = [services["server-1"], services["server-2"]]
    assert len({each["environment"]["BRIDLE_STORE"] for each in servers}) == 1
    assert all("@postgres/" in each["environment"]["BRIDLE_STORE"] for each in servers)
    ports = [port for each in servers for port in each["ports"]]
    assert len(set(ports)) == 2 and all(port.startswith("127.0.0.1:") for port in ports)
    for service in services.values():
        for name, value in service["environment"].items():
            if SECRET_NAME.search(name):
                assert value is None or REQUIRED.fullmatch(value), name
    for path in ("compose.yml", "Containerfile"):
        assert not re.search(r"bridle_[0-9a-f]{16}_|sk-\w{8}|://\w+:\w+@", (DEPLOY / path).read_text())


def test_services_have_health_checks_files_and_volumes():
    services = COMPOSE["services"]
    assert "pg_isready" in services["postgres"]["healthcheck"]["test"]
    for service in services.values():
        if "build" in service:
            context = DEPLOY / service["build"]["context"]
            assert (context / service["build"]["dockerfile"]).samefile(DEPLOY / "Containerfile")
            assert service["depends_on"]["postgres"]["condition"] == "service_healthy"
            assert service["read_only"] and service["cap_drop"] == ["ALL"]
        names = [volume.split(":")[0] for volume in service["volumes"] if re.match(r"\w+:", volume)]
        assert names and set(names) <= set(COMPOSE["volumes"])


def test_compose_accepts_the_file():
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True).returncode != 0:
        pytest.skip("docker compose is not installed: compose.yml was only read as YAML")
    done = subprocess.run(
        [docker, "compose", "-f", DEPLOY / "compose.yml", "config", "--quiet"],
        env={"PATH": "/usr/bin:/bin:/usr/local/bin", "POSTGRES_PASSWORD": "x"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
