"""Speed beside the peers, in one interleaved run: `make bench`.

The mock server, the runner and the peers' contestants come from the peers' benchmark
(folder named by $BRIDLE_PEERS, else `../shared/bench`); it is copied to bench/.work, its
peers are installed there on demand, and Bridle joins as one contestant more, on asyncio and on uvloop.  CPU time
is the figure: the machine may be busy with other things, a ratio taken in the same run
does not mind.

    python bench/speed.py                                  everything, about 20 minutes; then the targets
    python bench/speed.py --suites loop,text --protos anthropic --rounds 5 --peers raw-aiohttp,pydantic-ai
    python bench/speed.py --json > bench/speed.json        the recording that docs/evidence.md is made from
    python bench/speed.py --suites loop --json --update    replace these suites in bench/speed.json, keep the others
    BRIDLE_BENCH_PORT=9800 python bench/speed.py           beside another benchmark on the same machine

The exit code is 1 if a target (bench/targets.py) is missed.  With SDKs a step of a long run costs up to a second: on Chat and
Responses the peers' long runs are 120 steps instead of 400 and one round, and many sessions are measured on Messages alone.
"""

import argparse
import json
import os
import platform
import re
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path

from targets import OURS, PROTOS, format_figure, judge

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent
WORK = HERE / ".work" / "peers"
UVLOOP = HERE / ".work" / "uvloop"
RECORDING = HERE / "speed.json"
PORT = os.environ.get("BRIDLE_BENCH_PORT", "9719")
SUITES = {
    "loop": "CPU per step (20 tool steps), microseconds",
    "text": "CPU per text delta (5,000 in a burst), microseconds",
    "grow": "CPU of step 10, 100 and 400 of one run (results of 2 kB), microseconds",
    "conc": "CPU per step of 64 and 512 sessions at once, microseconds",
    "early": "last byte of a tool call to the start of the tool, while the reply goes on for 0.4 s, milliseconds",
    "memory": "resident memory: of the process after import and 8 runs, MB; of each of 512 open streaming sessions, kB",
    "paced": "CPU per text delta (one per ms), microseconds",
}
PEER_SUITES = {"memory": "rss"}
MEMORY_SESSIONS = 512
OWN_SUITES = ("calls", "durable", "start")
"""Measured without the peers' benchmark."""
START_ROUNDS = 15
VENVS = {"raw-aiohttp": "base", "raw-httpx": "base", "floor": "base", "prototype": "base",
         "pydantic-ai": "pydantic_ai", "anthropic-sdk": "sdks", "langgraph": "langgraph", "agno": "agno",
         "openai-agents": "openai_agents", "strands": "strands", "google-adk": "adk", "litellm": "litellm"}  # fmt: skip
PLAIN = ("floor", "prototype", "raw-aiohttp", "raw-httpx")
"""Peers without an SDK: measured everywhere."""
ON_UVLOOP = "bridle+uvloop"


def main():
    options = parse()
    source = Path(os.environ.get("BRIDLE_PEERS", PROJECT.parent / "shared" / "bench"))
    if not (source / "bench.py").exists():
        sys.exit(f"the peers' benchmark is not at {source}; name its folder in $BRIDLE_PEERS")
    if any(suite in SUITES for suite in options.suites):
        prepare(source, options.peers)
    suites = {}
    for suite in options.suites:
        print(f"{datetime.now(UTC):%H:%M:%S} {suite}, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
        suites[suite] = measure_own(suite) if suite in OWN_SUITES else measure_beside_peers(suite, options)
        if suite == "conc":
            suites["rate"] = {
                name: {key: 1e6 / micros for key, micros in cells.items()}
                for name, cells in suites["conc"].items()
            }
    recorded = describe_run(options) | {"suites": suites}
    if options.update:
        old = json.loads(RECORDING.read_text())
        recorded["suites"] = old["suites"] | suites
    if options.json:
        text = json.dumps(recorded, indent=1)
        RECORDING.write_text(text + "\n") if options.update else print(text)
    else:
        for suite in (name for name in suites if name in SUITES):
            show(suite, suites[suite])
    return report_targets(recorded["suites"])


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    split = lambda text: text.split(",")
    everything = [*(name for name in SUITES if name != "paced"), *OWN_SUITES]
    parser.add_argument("--suites", type=split, default=everything)
    parser.add_argument("--peers", type=split, default=["floor", "raw-aiohttp", "agno", "pydantic-ai"])
    parser.add_argument("--protos", type=split, default=list(PROTOS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--update", action="store_true", help="write bench/speed.json")
    return parser.parse_args()


def describe_run(options):
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": f"{os.cpu_count()} shared cores, {platform.system()} {platform.machine()}",
        "load": round(os.getloadavg()[1], 1),
        "python": platform.python_version(),
        "rounds": options.rounds,
        "versions": {peer: find_version(peer) for peer in options.peers if peer not in PLAIN},
    }


def find_version(peer):
    venv = WORK / "venvs" / VENVS[peer]
    name = peer.replace("-", "_")
    found = [
        *venv.glob(f"lib/*/site-packages/{name}-*.dist-info"),
        *venv.glob(f"lib/*/site-packages/{name}_slim-*.dist-info"),
    ]
    return found[0].name.split("-")[1].removesuffix(".dist") if found else ""


def prepare(source, peers):
    WORK.mkdir(parents=True, exist_ok=True)
    shutil.copytree(source, WORK, dirs_exist_ok=True)
    for folder in ("logs", "results", "venvs"):
        (WORK / folder).mkdir(exist_ok=True)
    shutil.copy(HERE / "contestant.py", WORK / "contestants" / "c_bridle.py")
    for peer in ("c_pydantic_ai.py", "c_agno.py"):
        lengthen_connect_timeout(WORK / "contestants" / peer)
    ours = WORK / "venvs" / "bridle"
    if not ours.exists():
        ours.symlink_to(Path(sys.prefix), target_is_directory=True)
    if not (WORK / "server" / "mockd").exists():
        quiet(["bash", "server/build.sh"])
    if not UVLOOP.exists():
        uv = shutil.which("uv") or str(install_uv())
        quiet([uv, "pip", "install", "-q", "--python", sys.executable, "--target", str(UVLOOP), "uvloop"])
    wanted = {VENVS[peer] for peer in peers}
    missing = [name for name in sorted(wanted) if not (WORK / "venvs" / name / ".ready").exists()]
    if missing:
        print(f"installing {', '.join(missing)} (once) ...", file=sys.stderr)
        uv = shutil.which("uv") or str(install_uv())
        quiet(["bash", "setup_venvs.sh", *missing], UV=uv, PY=sys.executable)
        for name in missing:
            (WORK / "venvs" / name / ".ready").touch()


def lengthen_connect_timeout(path):
    """The SDKs give up a connection after 5 seconds: too soon if one process opens 512 of them on a busy machine."""
    text = path.read_text()
    path.unlink()
    path.write_text(re.sub(r"max_retries=0(?!, timeout)", "max_retries=0, timeout=600.0", text))


def install_uv():
    venv = WORK / "venvs" / "uv"
    quiet([sys.executable, "-m", "venv", str(venv)])
    quiet([str(venv / "bin" / "pip"), "install", "-q", "uv"])
    return venv / "bin" / "uv"


def measure_beside_peers(suite, options):
    """The medians of all contestants: {name: {column: value}}."""
    plain = [OURS, ON_UVLOOP, *(peer for peer in options.peers if peer in PLAIN)]
    frameworks = [peer for peer in options.peers if peer not in PLAIN]
    protos, rounds = options.protos, options.rounds
    figures = defaultdict(lambda: defaultdict(list))
    if suite in ("grow", "conc"):
        others = [proto for proto in protos if proto != "anthropic"]
        plans = [(suite, plain, others, rounds), (suite, [*plain, *frameworks], protos[:1], rounds)]
        if suite == "grow":
            plans.append(("grow_r", frameworks, others, 1))
    elif suite == "memory":
        plans = [(suite, [*plain, *frameworks], protos[:1], 1)]
    else:
        plans = [(suite, [*plain, *frameworks], protos, rounds)]
    for name, contestants, chosen, times in plans:
        for row in run_suite(name, contestants, chosen, times) if contestants and chosen else ():
            collect(figures, suite, row)
    return {
        name: {key: round(statistics.median(values), 3) for key, values in cells.items()}
        for name, cells in figures.items()
    }


def run_suite(suite, contestants, protos, rounds):
    name = PEER_SUITES.get(suite, suite)
    results = WORK / "results" / f"{name}.jsonl"
    results.unlink(missing_ok=True)
    quiet(["bash", "server/ctl.sh", "restart", PORT])
    try:
        script = (
            "import sys, bench; bench.CONTESTANTS['bridle'] = ('bridle', 'c_bridle', []);"
            "bench.CONTESTANTS['bridle+uvloop'] = ('bridle', 'c_bridle', ['uvloop']);"
            f"bench.SUITES['rss'] = [dict(op='rss', c={MEMORY_SESSIONS}, stream=True, ms=15000)];"
            "sys.argv = ['bench.py', *sys.argv[1:]]; bench.main()"
        )
        fresh = ["--fresh"] if suite == "memory" else []
        quiet([sys.executable, "-c", script, "run", name, "--rounds", str(rounds), "--only", ",".join(contestants),
               "--protos", ",".join(protos), *fresh], MOCK_PORT=PORT, PYTHONPATH=str(UVLOOP))  # fmt: skip
    finally:
        quiet(["bash", "server/ctl.sh", "stop", PORT])
    return [json.loads(line) for line in results.read_text().splitlines()]


def collect(figures, suite, row):
    if "error" in row["res"]:
        print(f"{row['contestant']}: {row['res']['error']}", file=sys.stderr)
        return
    command, result = row["cmd"], row["res"]
    if result.get("errors"):
        print(f"{row['contestant']}: {result['errors']} runs failed: {result['err']}", file=sys.stderr)
        return
    if suite == "grow":
        cells = {f"step {n}": result[f"s{n}"] for n in (10, 100, 400) if f"s{n}" in result}
    elif suite == "early":
        cells = {"first": result["first_ms"]}
    elif suite == "memory":
        cells = {"process": result["rss0_mb"], "session": result["kb_per_session"]}
    elif suite in ("text", "paced"):
        cells = {"burst" if suite == "text" else "paced": result["cpu_us"]}
    else:
        sessions = f" x{command['c']}" if "c" in command else ""
        cells = {("sse" if command.get("stream") else "json") + sessions: result["cpu_us"]}
    for key, value in cells.items():
        figures[row["contestant"]][f"{row['proto']} {key}"].append(value)


def measure_own(suite):
    if suite == "start":
        return {OURS: measure_start()}
    if suite == "calls":
        kinds = run_json("steps.py", "--json")
        return {OURS: {kind: found["all"] for kind, found in kinds.items()}}
    found = run_json("durable.py", "--json", "--rounds", "5")
    rates = {
        kind: {
            f"{count} {clock}": round(row[kind][clock])
            for count, row in found.items()
            for clock in ("wall", "cpu")
        }
        for kind in ("memory", "sqlite")
    }
    shares = {key: round(rates["sqlite"][key] / rates["memory"][key], 3) for key in rates["memory"]}
    return {OURS: shares, **rates}


def run_json(script, *words):
    done = subprocess.run(
        [sys.executable, str(HERE / script), *words], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def measure_start():
    """Milliseconds beyond a bare interpreter, the least of interleaved rounds: CPU time, and wall time of the help."""
    python = sys.executable
    commands = {
        "bare": [python, "-c", "pass"],
        "asyncio and msgspec": [python, "-c", "import asyncio, msgspec"],
        "first use": [python, "-c", "from bridle import Agent, Budget, tool"],
        "help": [str(Path(python).with_name("bridle")), "--help"],
    }
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    best = dict.fromkeys(commands, float("inf"))
    for _ in range(START_ROUNDS):
        for name, command in commands.items():
            before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
            wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            best[name] = min(best[name], 1000 * (wall if name == "help" else cpu))
    bare = best.pop("bare")
    return {name: round(spent - (0 if name == "help" else bare), 1) for name, spent in best.items()}


def show(suite, table):
    columns = list(dict.fromkeys(key for cells in table.values() for key in cells))
    print(f"\n{SUITES[suite]} (times Bridle's)")
    ours = table.get(OURS, {})
    for proto in PROTOS:
        shown = [column for column in columns if column.startswith(f"{proto} ")]
        if not shown:
            continue
        print(f"{PROTOS[proto]:<16}" + "".join(f"{column.split(' ', 1)[1]:>22}" for column in shown))
        for name in sorted(table, key=lambda name: min(table[name].values())):
            cells = [(table[name].get(column), ours.get(column)) for column in shown]
            if any(value is not None for value, _ in cells):
                print(f"{name:<16}" + "".join(f"{format_cell(*cell):>22}" for cell in cells))


def format_cell(value, ours):
    if value is None:
        return "-"
    return format_figure(value) + (f" ({value / ours:.2f}x)" if ours else "")


def report_targets(suites):
    missed = 0
    print(file=sys.stderr)
    for target, value in judge(suites):
        is_met = target.is_met(value)
        missed += not is_met
        verdict = "ok    " if is_met else "MISSED"
        print(f"{verdict} {target.what}: {format_figure(value)} ({target.describe_limit()})", file=sys.stderr)
    return int(missed > 0)


def quiet(command, **environment):
    done = subprocess.run(
        command, cwd=WORK, env={**os.environ, **environment}, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"{' '.join(command[:3])} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


if __name__ == "__main__":
    sys.exit(main())
