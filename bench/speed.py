"""Speed beside the peers, as ratios, in one interleaved run.

The mock server, the runner and the peers' contestants come from the peers' benchmark
(folder named by $BRIDLE_PEERS, else `../shared/bench`); it is copied to bench/.work, its
peers are installed there on demand, and Bridle joins as one contestant more.  CPU time
is the figure: the machine may be busy with other things, a ratio taken in the same run
does not mind.

    python bench/speed.py [--suites loop,text,grow] [--rounds 3] [--peers raw-aiohttp,pydantic-ai] [--json]
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent
WORK = HERE / ".work" / "peers"
SUITES = {"loop": "CPU per step (20 tool steps)", "text": "CPU per text delta (5,000 in a burst)",
          "paced": "CPU per text delta (one per ms)", "grow": "CPU of step 10 / 100 / 400 (2 kB results)",
          "conc": "CPU per step (64 and 512 sessions at once)", "early": "block complete to tool start, ms"}  # fmt: skip
VENVS = {"raw-aiohttp": "base", "raw-httpx": "base", "floor": "base", "prototype": "base",
         "pydantic-ai": "pydantic_ai", "anthropic-sdk": "sdks", "langgraph": "langgraph", "agno": "agno",
         "openai-agents": "openai_agents", "strands": "strands", "google-adk": "adk", "litellm": "litellm"}  # fmt: skip
TARGETS = [  # suite, figure, peer, at most this many times the peer
    ("loop", "json", "pydantic-ai", 1 / 8),
    ("loop", "sse", "pydantic-ai", 1 / 8),
    ("loop", "json", "raw-aiohttp", 2.5),
    ("loop", "sse", "raw-aiohttp", 2.5),
    ("text", "burst", "raw-aiohttp", 2.5),
]
GROWTH_MAX = 2.0
"""What step 400 may cost of step 10."""


def main():
    options = parse()
    source = Path(os.environ.get("BRIDLE_PEERS", PROJECT.parent / "shared" / "bench"))
    if not (source / "bench.py").exists():
        sys.exit(f"the peers' benchmark is not at {source}; name its folder in $BRIDLE_PEERS")
    prepare(source, options.peers)
    figures = defaultdict(lambda: defaultdict(list))
    for suite in options.suites:
        for row in measure(suite, options):
            collect(figures, suite, row)
    medians = {
        suite: {
            name: {key: statistics.median(v) for key, v in cells.items()} for name, cells in table.items()
        }
        for suite, table in regroup(figures).items()
    }
    if options.json:
        print(json.dumps(medians))
    else:
        for suite, table in medians.items():
            show(suite, table)
    return judge(medians)


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    split = lambda text: text.split(",")
    parser.add_argument("--suites", type=split, default=["loop", "text"])
    parser.add_argument("--peers", type=split, default=["raw-aiohttp", "pydantic-ai"])
    parser.add_argument("--protos", default="anthropic")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def prepare(source, peers):
    WORK.mkdir(parents=True, exist_ok=True)
    shutil.copytree(source, WORK, dirs_exist_ok=True)
    for folder in ("logs", "results", "venvs"):
        (WORK / folder).mkdir(exist_ok=True)
    shutil.copy(HERE / "contestant.py", WORK / "contestants" / "c_bridle.py")
    ours = WORK / "venvs" / "bridle"
    if not ours.exists():
        ours.symlink_to(Path(sys.prefix), target_is_directory=True)
    if not (WORK / "server" / "mockd").exists():
        quiet(["bash", "server/build.sh"])
    wanted = {VENVS[peer] for peer in peers}
    missing = [name for name in sorted(wanted) if not (WORK / "venvs" / name / ".ready").exists()]
    if missing:
        print(f"installing {', '.join(missing)} (once) ...", file=sys.stderr)
        uv = shutil.which("uv") or str(install_uv())
        quiet(["bash", "setup_venvs.sh", *missing], UV=uv, PY=sys.executable)
        for name in missing:
            (WORK / "venvs" / name / ".ready").touch()


def install_uv():
    venv = WORK / "venvs" / "uv"
    quiet([sys.executable, "-m", "venv", str(venv)])
    quiet([str(venv / "bin" / "pip"), "install", "-q", "uv"])
    return venv / "bin" / "uv"


def measure(suite, options):
    results = WORK / "results" / f"{suite}.jsonl"
    results.unlink(missing_ok=True)
    quiet(["bash", "server/ctl.sh", "restart"])
    try:
        script = (
            "import sys, bench; bench.CONTESTANTS['bridle'] = ('bridle', 'c_bridle', []);"
            "sys.argv = ['bench.py', *sys.argv[1:]]; bench.main()"
        )
        only = ",".join(["bridle", *options.peers])
        quiet([sys.executable, "-c", script, "run", suite, "--rounds", str(options.rounds),
               "--only", only, "--protos", options.protos])  # fmt: skip
    finally:
        quiet(["bash", "server/ctl.sh", "stop"])
    return [json.loads(line) for line in results.read_text().splitlines()]


def collect(figures, suite, row):
    if "error" in row["res"]:
        print(f"{row['contestant']}: {row['res']['error']}", file=sys.stderr)
        return
    command, result = row["cmd"], row["res"]
    if suite == "grow":
        cells = {"step 10": result["s10"], "step 100": result["s100"], "step 400": result["s400"]}
    elif suite == "early":
        cells = {"first ms": result["first_ms"], "last ms": result["last_ms"]}
    elif suite in ("text", "paced"):
        cells = {"burst" if suite == "text" else "paced": result["cpu_us"]}
    else:
        sessions = f" x{command['c']}" if "c" in command else ""
        cells = {("sse" if command.get("stream") else "json") + sessions: result["cpu_us"]}
    for key, value in cells.items():
        figures[suite][row["contestant"], row["proto"], key].append(value)


def regroup(figures):
    grouped = {}
    for suite, cells in figures.items():
        table = grouped.setdefault(suite, {})
        protos = {proto for _, proto, _ in cells}
        for (name, proto, key), values in cells.items():
            label = key if len(protos) == 1 else f"{proto} {key}"
            table.setdefault(name, {})[label] = values
    return grouped


def show(suite, table):
    columns = list(dict.fromkeys(key for cells in table.values() for key in cells))
    print(f"\n{SUITES[suite]}: microseconds (times Bridle's)" if suite != "early" else f"\n{SUITES[suite]}")
    print(f"{'':<16}" + "".join(f"{column:>24}" for column in columns))
    ours = table.get("bridle", {})
    for name, cells in sorted(table.items(), key=lambda item: min(item[1].values())):
        row = ""
        for column in columns:
            value = cells.get(column)
            ratio = f" ({value / ours[column]:.2f}x)" if value and ours.get(column) else ""
            row += f"{'-' if value is None else f'{value:.1f}' + ratio:>24}"
        print(f"{name:<16}{row}")


def judge(medians):
    worst = 0
    print()
    for suite, figure, peer, limit in TARGETS:
        table = medians.get(suite, {})
        mine, theirs = table.get("bridle", {}).get(figure), table.get(peer, {}).get(figure)
        if mine is None or theirs is None:
            continue
        ratio = mine / theirs
        verdict = "ok " if ratio <= limit else "MISSED"
        worst |= ratio > limit
        print(f"{verdict} {suite}/{figure}: {ratio:.2f} of {peer} (at most {limit:.3g})", file=sys.stderr)
    grown = medians.get("grow", {}).get("bridle", {})
    for early in [key for key in grown if key.endswith("step 10")]:
        ratio = grown[early.replace("step 10", "step 400")] / grown[early]
        worst |= ratio > GROWTH_MAX
        verdict = "ok " if ratio <= GROWTH_MAX else "MISSED"
        print(f"{verdict} grow: {early} to 400: {ratio:.2f} (at most {GROWTH_MAX})", file=sys.stderr)
    return int(worst)


def quiet(command, **environment):
    done = subprocess.run(
        command, cwd=WORK, env={**os.environ, **environment}, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"{' '.join(command[:3])} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


if __name__ == "__main__":
    sys.exit(main())
