"""Run foreign clients against the simulator over HTTP and print a table of what came of each.

    python bench/foreign/run.py [--install] [--newest] [--write] [--served | --gateway] [NAME ...]

Every client of `clients.toml` runs unmodified in an environment of its own (bench/.work/foreign), against a
`bridle sim` of its own. A cell is good when the client called the tools, gave the scripted answer, and the
simulator refused none of its requests. With `--served` it asks an agent that has a tool of its own, which must have run. With
`--gateway` it asks a gateway, and no field of its requests may be lost on the way to a provider of the same wire.

A client that is not installed is shown as such; `--install` installs it, and `--newest` replaces what is installed with
today's release. Both use a current Node, because npm chooses releases that the Node it runs on can use, and uv, which
installs the packages of Python in seconds.
The exit code is 1 when a cell of a client that ran is not good, or a client that was to be installed is not.
"""

import argparse
import contextlib
import datetime
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
WORK = HERE.parent / ".work" / "foreign"
ROOT = HERE.parent.parent
RESULTS = WORK / "results"
PAGE = ROOT / "docs" / "oracles.md"
PAGES = {
    "simulator": PAGE,
    "served": ROOT / "docs" / "wires_served.md",
    "gateway": ROOT / "docs" / "gateway.md",
}
NODE = WORK.parent / "node" / "node_modules" / ".bin"
"""Programs of a current Node, which is installed beside the clients."""
NODE_PACKAGE = "node@24"
NOT_INSTALLABLE = "could not be installed"
"""Cell of a client or a server that was to be installed."""
UV = WORK.parent / "uv" / "bin" / "uv"
"""The installer of packages of Python."""
DOCUMENTED_LOSSES = re.compile(r"(stream|streamoptions|previousresponseid|thread)(\..*)?")
"""Fields that are met at the gateway and not sent (docs/gateway.md)."""
DOCUMENTED_CHANGES = re.compile(r"model=.*|(.*\.)?(id|tooluseid|toolcallid|callid)=.*")
"""Values of a request that the gateway chooses: the model, and ids of calls."""
WANTED = {
    "handoff": (["Oslo"], "Rome it is."),
    "changed": (["Oslo"], "Rome it is."),
    "only-shape": ([], {"city": "Rome", "sunny": True}),
    "shape": (["Oslo"], {"city": "Rome", "sunny": True}),
}
TOOLS = (["Bonn", "Oslo", "Rome"], "Rome it is.")
ANSWERS = ("Rome it is.", ["Rome it is.", "Still Rome."])


def main() -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--install", action="store_true", help="install what is missing")
    options.add_argument(
        "--write",
        action="store_true",
        help="record the table in docs/oracles.md, that of --served in docs/wires_served.md, of --gateway in docs/gateway.md",
    )
    options.add_argument(
        "--newest", action="store_true", help="replace what is installed with today's release"
    )
    options.add_argument("--keep-log", action="store_true", help="keep the simulator's log of every client")
    options.add_argument(
        "--served", action="store_true", help="ask a served agent with a tool of its own, not the simulator"
    )
    options.add_argument("--gateway", action="store_true", help="ask a gateway, not the simulator")
    options.add_argument("--seconds", type=int, default=900, help="time for one client")
    options.add_argument(
        "names", nargs="*", help="clients to run (the beginning of a name); all when none is given"
    )
    asked = options.parse_args()
    asked.target = "served" if asked.served else "gateway" if asked.gateway else "simulator"
    RESULTS.mkdir(parents=True, exist_ok=True)
    if asked.install or asked.newest:
        install_tools(newest=asked.newest)
    os.environ["PATH"] = f"{NODE}{os.pathsep}{os.environ['PATH']}"
    clients = tomllib.loads((HERE / "clients.toml").read_text())["client"]
    results, ran = {}, {}
    for client in clients:
        name = client["name"]
        kept = RESULTS / asked.target / f"{re.sub(r'[^a-z0-9]+', '-', name.lower())}.json"
        if not asked.names or any(name.startswith(given) for given in asked.names):
            results[name] = ran[name] = run_client(client, asked)
            kept.parent.mkdir(exist_ok=True)
            kept.write_text(json.dumps(results[name], indent=1))
            print(table({name: results[name]}, head=False), flush=True)
        elif kept.exists():
            results[name] = json.loads(kept.read_text())
    text = table(results)
    print(f"\n{text}\n\n{summary(results)}")
    if asked.write:
        write_page(f"{text}\n\n{summary(results)}", page=PAGES[asked.target])
    return int(any(not is_good(cell) for result in ran.values() for cell in result["cells"].values()))


def is_good(cell: str) -> bool:
    """Whether a cell is no reason to fail: a client that nobody asked to install is none."""
    return cell in ("ok", "not installed")


def run_client(client: dict, asked: argparse.Namespace) -> dict:
    """Run all columns of one client; return its version and a word per column."""
    place = WORK / Path(client.get("environment", client["driver"])).stem
    modes = client.get("modes", ["whole", "stream"])
    columns = [
        f"{column}:{mode}"
        for column in client["columns"]
        for mode in modes
        if f"{column}:{mode}" not in client.get("not", {})
    ]
    if asked.target != "simulator":
        columns = [each for each in columns if ":converse:" not in each]
    if asked.newest and is_installed(place):
        shutil.rmtree(place)
    if (asked.install or asked.newest) and not is_installed(place):
        install(client, place)
    if not is_installed(place):
        missing = NOT_INSTALLABLE if asked.install or asked.newest else "not installed"
        return {"version": "", "date": "", "cells": dict.fromkeys(columns, missing)}
    cells = dict.fromkeys(columns, "no report")
    with tempfile.TemporaryDirectory() as scratch:
        log = (
            (WORK / f"{Path(client['driver']).stem}.jsonl") if asked.keep_log else Path(scratch) / "log.jsonl"
        )
        log.unlink(missing_ok=True)
        with (
            running_simulator(log)
            if asked.target == "simulator"
            else running_served(asked.target, log) as url
        ):
            for report in reports(client, place, columns, url, scratch, asked):
                if report["column"] in cells:
                    cells[report["column"]] = judge(report, read_log(log, report), client, asked.target)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {"version": version(client, place), "date": today, "cells": cells}


def judge(report: dict, seen: list[dict], client: dict, target: str) -> str:
    """Say `ok`, or in one line what went wrong."""
    refused = [each["refused"] for each in seen if "refused" in each]
    if "error" in report:
        return "error: " + first_line(report["error"])
    feature = report["column"].split(":")[0]
    looked, answer = WANTED.get(feature, TOOLS)
    right = [answer] if feature in WANTED else ANSWERS
    if report["looked"] != looked:
        return f"called {report['looked']}"
    if report["answer"] not in right:
        return "answered " + first_line(json.dumps(report["answer"]))
    refused = [
        line for line in refused if not any(re.search(rule, line) for rule in client.get("expected", []))
    ]
    if refused:
        return "refused " + "; ".join(dict.fromkeys(refused))
    if target == "served" and not any("own" in each for each in seen) and feature != "aider":
        return "the agent's own tool did not run"
    if target == "gateway" and not any("compared" in each for each in seen):
        return "no request was compared"
    return describe_losses(seen)


def describe_losses(seen: list[dict]) -> str:
    """Say `ok`, or which fields a gateway lost and which values it changed."""
    lost = {
        field for each in seen for field in each.get("lost", ()) if not DOCUMENTED_LOSSES.fullmatch(field)
    }
    changed = {
        value for each in seen for value in each.get("changed", ()) if not DOCUMENTED_CHANGES.fullmatch(value)
    }
    found = [
        f"{word} {', '.join(sorted(names))}"
        for word, names in (("lost", lost), ("changed", changed))
        if names
    ]
    return first_line("; ".join(found)) if found else "ok"


def running_served(target: str, log: Path):
    """Start an agent or a gateway behind every wire (served.py) and stop it in the end."""
    kind = ["--gateway"] if target == "gateway" else []
    return running_server([sys.executable, str(HERE / "served.py"), "--port", "0", "--log", str(log), *kind])


def running_simulator(log: Path):
    """Start `bridle sim` as a person would and stop it in the end."""
    return running_server(
        [sys.executable, "-m", "bridle.cli.main", "sim", "--port", "0", "--json", "--log", str(log)]
    )


@contextlib.contextmanager
def running_server(command: list[str]):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as server:
        try:
            yield json.loads(server.stdout.readline())["url"]
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(timeout=30)


SEEN: dict[Path, int] = {}


def read_log(log: Path, report: dict) -> list[dict]:
    """Return what the server noted while a column ran; exchanges of the simulator as refusals.

    The simulator notes no times: its lines are those since the last time it was asked.
    """
    lines = log.read_text().splitlines() if log.exists() else []
    noted = [json.loads(line) for line in lines]
    fresh = noted[SEEN.get(log, 0) :]
    SEEN[log] = len(lines)
    found = [each for each in noted if report["began"] <= each.get("at", 0.0) <= report["ended"]]
    for each in fresh:
        if "response" in each and each["response"]["status"] >= 400:
            asked, status = each["request"], each["response"]["status"]
            path = asked.get("path") or asked.get("url")
            found.append({"refused": f"{status} {asked.get('method', 'POST')} {path}"})
    return found


def reports(client: dict, place: Path, columns: list[str], url: str, scratch: str, asked: argparse.Namespace):
    """Start the driver in its environment and yield its reports as they come."""
    driver = HERE / client["driver"]
    if driver.suffix == ".mjs":  # a module finds its packages only from its own folder upwards
        (place / driver.name).write_text(driver.read_text())
        (place / "task.mjs").write_text((HERE / "task.mjs").read_text())
        command = ["node", str(place / driver.name)]
    elif "npm" in client or client.get("coding"):
        command = [sys.executable, str(driver)]
    else:
        command = [str(place / "bin" / "python"), str(driver)]
    environment = {
        **{name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")},
        "FOREIGN_URL": url,
        "FOREIGN_ENVIRONMENT": str(place),
        "FOREIGN_SCRATCH": scratch,
        "HOME": scratch,
        "FOREIGN_OWN_TOOL": "1" if asked.target == "served" else "",
    }
    errors = WORK / f"{driver.stem}.stderr"
    with errors.open("w") as stderr, subprocess.Popen(
        ["timeout", str(asked.seconds), *command, *columns],
        stdout=subprocess.PIPE, stderr=stderr, stdin=subprocess.DEVNULL, env=environment, text=True, cwd=scratch,
    ) as process:  # fmt: skip
        for line in process.stdout:
            if line.startswith('{"column"'):
                yield json.loads(line)


def is_installed(place: Path) -> bool:
    return (place / "bin" / "python").exists() or (place / "node_modules").exists()


def install_tools(*, newest: bool = False) -> None:
    """Install a current Node and uv beside the clients; `newest` replaces older ones."""
    place = NODE.parent.parent
    if not (UV.parent / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", str(UV.parent.parent)], check=True)
    if newest or not UV.exists():
        command = [str(UV.parent / "python"), "-m", "pip", "install", "-q", "--upgrade", "uv"]
        subprocess.run(command, check=True)
    if newest or not NODE.exists():
        place.mkdir(parents=True, exist_ok=True)
        (place / "package.json").write_text('{"private": true}')
        command = ["npm", "install", "--silent", "--no-audit", "--no-fund", NODE_PACKAGE]
        subprocess.run(command, cwd=place, check=True)


def install(client: dict, place: Path) -> None:
    """Install the packages of a client from the public registries into its own folder."""
    if "npm" in client:
        place.mkdir(parents=True, exist_ok=True)
        (place / "package.json").write_text('{"private": true}')
        command = ["npm", "install", "--silent", "--no-audit", "--no-fund", *client["npm"]]
        if subprocess.run(command, cwd=place, check=False).returncode:
            print(f"{client['name']} {NOT_INSTALLABLE}", file=sys.stderr)
            shutil.rmtree(place / "node_modules", ignore_errors=True)
        return
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    command = [
        str(UV),
        "pip",
        "install",
        "-q",
        "--python",
        str(place / "bin" / "python"),
        *client["packages"],
    ]
    if subprocess.run(command, check=False).returncode:
        print(f"{client['name']} {NOT_INSTALLABLE}", file=sys.stderr)
        (place / "bin" / "python").unlink()


def version(client: dict, place: Path) -> str:
    """Return the version of the client's first package as installed."""
    if "npm" in client:
        name = re.sub(r"(?<=.)@.*", "", client["npm"][0])
        return json.loads((place / "node_modules" / name / "package.json").read_text())["version"]
    name = re.split(r"[\[<>=]", client["packages"][0])[0]
    ask = f"import importlib.metadata as m; print(m.version({name!r}))"
    command = [str(place / "bin" / "python"), "-c", ask]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def table(results: dict, head: bool = True) -> str:
    """Lay the results out: a row per client, feature and wire; a column per mode."""
    rows = (
        ["| client | version | run on | feature | wire | whole | streamed |", "|---|---|---|---|---|---|---|"]
        if head
        else []
    )
    for name, result in results.items():
        pairs = list(dict.fromkeys(column.rsplit(":", 1)[0] for column in result["cells"]))
        for pair in pairs:
            feature, wire = pair.split(":")
            whole, streamed = (result["cells"].get(f"{pair}:{mode}", "-") for mode in ("whole", "stream"))
            about = f"{name} | {result['version']} | {result.get('date', '')}"
            rows.append(f"| {about} | {feature} | {wire} | {whole} | {streamed} |")
    return "\n".join(rows)


def summary(results: dict) -> str:
    cells = [cell for result in results.values() for cell in result["cells"].values()]
    good, missing = cells.count("ok"), cells.count("not installed")
    return f"{len(results)} clients, {len(cells)} cells: {good} ok, {len(cells) - good - missing} not, {missing} not installed."


def first_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "/")[:120]


def write_page(text: str, section: str = "foreign clients", page: Path = PAGE) -> None:
    """Put the table between its marks in a page of the documentation."""
    begin, end = f"<!-- begin {section} -->", f"<!-- end {section} -->"
    before, rest = page.read_text().split(begin)
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{rest.split(end)[1]}")


if __name__ == "__main__":
    sys.exit(main())
