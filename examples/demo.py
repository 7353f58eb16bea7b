"""The story of Bridle in about a minute: an agent that pays is killed, stopped and given another model.

    make demo
    python examples/demo.py --keep     keep the folder with the log and the ledger, and say where it is

Every `$` line is a process of its own. The model is `bridle sim`, which speaks the wire format of the real
providers on a local port and plays replies.toml; agent, tools, ledger, log and signals are real. On a terminal
there are pauses for reading. The exit code is 1 if a claim that the demo makes is not true.
"""

import argparse
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROJECT = Path(__file__).resolve().parent / "refunds"
INHERITED = ("COLUMNS", "LANG", "LC_ALL", "LC_CTYPE", "NO_COLOR", "PATH", "PYTHONPATH", "TERM")
"""Other variables could name a proxy, a model, a log or a key."""
WIDTH = 80
SCREENS = 6


class Demo:
    def __init__(self, folder: Path, *, paused: bool) -> None:
        self.folder, self.paused, self.failed = folder, paused, False
        self.shown = 0
        self.environment = {name: os.environ[name] for name in INHERITED if name in os.environ}
        self.environment["HOME"] = str(folder)
        self.coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")

    # --- what is printed -----------------------------------------------------------------------

    def screen(self, title: str, sentence: str) -> None:
        self.shown += 1
        head = f"── {self.shown} of {SCREENS} · {title} "
        self.pause(2.0 if self.shown > 1 else 0.0)
        self.print(f"\n{head:─<{WIDTH}}", "1;36")
        self.print(textwrap.fill(sentence, WIDTH))
        self.pause(3.0)

    def check(self, claim: str, found: object, expected: object) -> None:
        """Print a claim; the demo fails if what was found is not what it expects."""
        if found == expected:
            self.print(f"✓ {claim}", "32")
        else:
            self.failed = True
            self.print(f"✗ NOT TRUE: {claim}\n  found {found}, expected {expected}", "31")
        self.pause(1.0)

    def type(self, *words: str) -> None:
        """Show what a person would type; a long line is continued as in a shell."""
        lines = ["$"]
        for word in words:
            if len(f"{lines[-1]} {word} \\") > WIDTH:
                lines[-1] += " \\"
                lines.append("   ")
            lines[-1] += f" {word}"
        self.print("\n" + "\n".join(lines), "1")
        self.pause(0.5)

    def print(self, text: str, style: str = "") -> None:
        print(f"\x1b[{style}m{text}\x1b[0m" if style and self.coloured else text, flush=True)

    def pause(self, seconds: float) -> None:
        if self.paused:
            time.sleep(seconds)

    # --- what is run ---------------------------------------------------------------------------

    @contextmanager
    def start(self, *words: str, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
        """Show a command and start it, with these variables added to its environment."""
        settings = [f"{name}={value}" for name, value in variables.items()]
        self.type(*settings, "bridle", *map(quote_word, words))
        with subprocess.Popen(
            make_command(*words),
            cwd=self.folder,
            env={**self.environment, **variables},
            stdin=subprocess.DEVNULL,  # nothing is asked here: a call that needs a person waits in the log
            stderr=subprocess.STDOUT,
        ) as running:
            try:
                yield running
            finally:
                running.kill()

    def bridle(self, *words: str, code: int = 0) -> None:
        """Show a command and run it; its exit code must be the expected one."""
        with self.start(*words) as running:
            found = running.wait()
        if code or found != code:
            self.print(f"exit code {found}", "2")
        if found != code:
            raise SystemExit(f"the demo stops here: exit code {found} instead of {code}")
        self.pause(0.5)

    def read(self, *words: str) -> str:
        """The JSON that a command prints; the command is not shown."""
        return subprocess.run(
            make_command(*words, "--json"),
            cwd=self.folder,
            env=self.environment,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout

    @contextmanager
    def simulator(self) -> Iterator[subprocess.Popen[str]]:
        """Serve the scripted model, and point the vendors' variables to it."""
        words = ("sim", "--port", "0", "--script", "replies.toml", "--log", "requests.jsonl", "--json")
        errors = (self.folder / "simulator.txt").open("w")
        with (
            errors,
            subprocess.Popen(
                make_command(*words),
                cwd=self.folder,
                env=self.environment,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,  # Ctrl-C ends it after the command that uses it
            ) as running,
        ):
            try:
                assert running.stdout is not None
                self.environment |= json.loads(running.stdout.readline())["exports"]
                yield running
            finally:
                running.terminate()

    # --- what happened outside -----------------------------------------------------------------

    def list_payments(self) -> list[str]:
        ledger = self.folder / "ledger.txt"
        return ledger.read_text().splitlines() if ledger.exists() else []

    def list_orders(self) -> list[int]:
        """Orders that were paid back, one for each payment."""
        return [int(line.split()[1]) for line in self.list_payments()]

    def show_ledger(self) -> None:
        self.type("cat", "ledger.txt")
        self.print("\n".join(self.list_payments()))
        self.pause(0.5)

    def count_receipts(self, session: str) -> int:
        """Payments whose result is in the log."""
        events = [json.loads(line)["event"] for line in self.read("show", session).splitlines()]
        return sum(each["type"] == "tool_finished" and each["name"] == "refund" for each in events)

    def list_paths(self) -> list[str]:
        """Paths of the requests that the simulator got, in order."""
        lines = (self.folder / "requests.jsonl").read_text().splitlines()
        return [json.loads(line)["request"]["path"] for line in lines]


def make_command(*words: str) -> list[str]:
    return [sys.executable, "-m", "bridle.cli.main", *words]


def quote_word(word: str) -> str:
    return f'"{word}"' if " " in word and not set(word) & set('"$`\\!') else shlex.quote(word)


def tell_story(demo: Demo) -> None:
    demo.print("An agent refunds orders of a shop (support.toml, tools.py). No key, no network.")
    with demo.simulator() as simulator:
        kill_while_paying(demo)
        session = resume_payments(demo)
        wait_for_approval(demo, session)
        raise_budget(demo, session)
        switch_model(demo, session)
        show_accounts(demo, session)
    demo.check(
        f"the model was asked {len(demo.list_paths())} times: no request was repeated after the crash",
        simulator.returncode,
        0,
    )


def kill_while_paying(demo: Demo) -> None:
    demo.screen(
        "killed in the middle of a payment",
        "An agent pays three customers; the bank takes the second payment and does not answer, and then the"
        " process is killed with SIGKILL.",
    )
    prompt = "Orders 4411, 4412 and 4413 arrived damaged. Please refund them."
    with demo.start("run", prompt, BANK_IS_SILENT_AT="4412") as running:
        while len(demo.list_orders()) < 2 and running.poll() is None:
            time.sleep(0.02)
        demo.pause(1.5)
        if sys.stdout.isatty():
            demo.print("")  # ends the line that names the running tool
        demo.type("kill", "-9", str(running.pid))
        running.kill()
        code = running.wait()
        if sys.stdout.isatty():
            print("\r\x1b[2K", end="", flush=True)  # the line that the killed process was drawing
    demo.show_ledger()
    demo.check("the process was killed after two payments", (code, demo.list_orders()), (-9, [4411, 4412]))


def resume_payments(demo: Demo) -> str:
    demo.screen(
        "resumed in a new process",
        "The log says that the second payment may have been made, so the tool looks it up in the ledger instead"
        " of paying again; the third payment follows.",
    )
    demo.bridle("sessions")
    (found,) = json.loads(demo.read("sessions"))
    session = str(found["session"])
    demo.check("the log has the receipt of one of them only", demo.count_receipts(session), 1)
    demo.bridle("resume", session)
    demo.show_ledger()
    demo.check("one payment for each order, none twice", demo.list_orders(), [4411, 4412, 4413])
    return session


def wait_for_approval(demo: Demo, session: str) -> None:
    demo.screen(
        "a call waits for a person",
        "Refunds above 100 dollars need approval: the run ends without paying, a person agrees in another"
        " process, and the run continues.",
    )
    demo.bridle("run", "--session", session, "Order 4414 arrived damaged too.", code=1)
    demo.check("nothing is paid while the question is open", len(demo.list_orders()), 3)
    demo.bridle("approvals")
    (question,) = json.loads(demo.read("approvals"))
    demo.bridle("approvals", "approve", question["id"], "--by", "maria", "--reason", "photograph checked")
    demo.bridle("resume", session)
    demo.check("the approved payment is made", demo.list_orders()[3:], [4414])


def raise_budget(demo: Demo, session: str) -> None:
    demo.screen(
        "a budget stops the run, and is raised",
        "The worst case of every model call must fit in what is left of the budget before the call is made; here"
        " a long tool result makes the next one too expensive.",
    )
    asked = len(demo.list_paths())
    prompt = "Was one of them refunded in October already?"
    demo.bridle("run", "--session", session, "--usd", "0.0065", prompt, code=1)
    demo.check("the run stopped before the call that could overspend", len(demo.list_paths()), asked + 1)
    demo.bridle("resume", session, "--usd", "0.05")


def switch_model(demo: Demo, session: str) -> None:
    demo.screen(
        "another vendor's model continues",
        "The same conversation, with its tool calls and results, continues in the wire format of another"
        " provider.",
    )
    before = len(demo.list_paths())
    demo.bridle("run", "--session", session, "-m", "openai:gpt-6.1-sol", "What is the sum of the refunds?")
    paths = demo.list_paths()
    demo.check(
        f"{before} requests to {paths[0]} (Anthropic), then one to {paths[-1]} (OpenAI)",
        (set(paths[:before]), paths[before:]),
        ({"/v1/messages"}, ["/v1/responses"]),
    )


def show_accounts(demo: Demo, session: str) -> None:
    demo.screen(
        "cost and cache",
        "Cost, cache and what happened are computed from the same log; the only prompt that had to be processed"
        " from its start again is the one for the other vendor.",
    )
    demo.bridle("cost", "--by", "model")
    demo.bridle("show", "--as", "cache", session)
    demo.show_ledger()
    demo.check(
        "four orders, four payments, four receipts in the log",
        (demo.list_orders(), demo.count_receipts(session)),
        ([4411, 4412, 4413, 4414], 4),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="The story of Bridle in about a minute.")
    parser.add_argument("--keep", action="store_true", help="keep the folder of the demo and say where it is")
    parser.add_argument("--fast", action="store_true", help="no pauses, also on a terminal")
    options = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))  # so that nothing is left behind
    folder = Path(tempfile.mkdtemp(prefix="bridle-demo-"))
    try:
        shutil.copytree(PROJECT, folder, dirs_exist_ok=True)
        demo = Demo(folder, paused=sys.stdout.isatty() and not options.fast)
        tell_story(demo)
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if options.keep:
            print(f"\nkept: {folder}\nto look around: cd {folder} && bridle sessions")
        else:
            shutil.rmtree(folder)
    demo.print("\nThe model was simulated; processes, payments, wire and log were real.")
    demo.print("Next: set a vendor's API key and name its model with -m, or read README.md.")
    return 1 if demo.failed else 0


if __name__ == "__main__":
    sys.exit(main())
