"""Code that `bridle check prompts` reports, and code that it does not."""

HEAD = """
import glob, hashlib, json, os, platform, random, secrets, socket, subprocess, sys, time, uuid
import datetime as dt
from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Literal
from bridle import Agent, tool
from bridle.tools import CommandTool, RawTool, TypedTool
import bridle

NAMES = ["b", "a"]
"""
OFFENDING = {
    "clock": [
        'agent = Agent("sim:", instructions=f"It is {datetime.now()}.")',
        'agent = Agent("sim:", instructions="It is " + dt.datetime.now(dt.UTC).isoformat())',
        'agent = Agent("sim:", instructions="Day %s" % date.today())',
        'agent = Agent("sim:", instructions="Day {}".format(time.strftime("%A")))',
        'agent = bridle.Agent("sim:", instructions=" ".join(["Now", str(time.time())]))',
        'now = datetime.now\nNOW = now()\nagent = Agent("sim:", instructions=f"At {NOW:%H}")',
        'def say(at):\n    return f"At {at}"\nagent = Agent("sim:", instructions=say(at=datetime.now()))',
        'def make(words):\n    return Agent("sim:", instructions=words)\nagent = make(f"{date.today()}")',
        '@tool\ndef look(since: str = str(date.today())) -> str:\n    "Look."\n    return since',
        '@tool(description=f"Look, {date.today()}")\ndef look() -> str:\n    return ""',
        (
            "class Bot:\n    def __init__(self):\n        self.at = datetime.now()\n    @property\n    def words(self):\n"
            '        return f"Since {self.at}"\n    def make(self):\n        return Agent("sim:", instructions=self.words)'
        ),
        'words = "Hello."\nif NAMES:\n    words += f" {date.today()}"\nagent = Agent("sim:", instructions=words)',
        'agent = Agent("sim:", instructions="x" if NAMES else str(time.time_ns()))',
        "say = lambda: f'{date.today()}'\nagent = Agent('sim:', instructions=say())",
        (
            'def say(at=None):\n    at = at or datetime.now()\n    return f"At {at:%H}"\n'
            'agent = Agent("sim:", instructions=say())'
        ),
        (
            "def say(at=None):\n    if at is None:\n        at = datetime.now()\n    return str(at)\n"
            'agent = Agent("sim:", instructions=say())'
        ),
        'options = {"instructions": time.ctime()}\nagent = Agent("sim:", **options)',
        'agent = Agent("sim:", **dict(instructions=time.ctime()))',
        'class Bot(Agent):\n    pass\nbot = Bot("sim:", instructions=time.ctime())',
        (
            "class Bot(Agent[str]):\n    def __init__(self):\n"
            '        super().__init__("sim:", instructions=time.ctime())'
        ),
        'from functools import partial\nmake = partial(Agent, "sim:", instructions=time.ctime())',
        'def f() -> str:\n    return ""\nf.__doc__ = f"F, {date.today()}"\nagent = Agent("sim:", tools=[f])',
    ],
    "random": [
        'agent = Agent("sim:", instructions=f"Run {uuid.uuid4()}")',
        'agent = Agent("sim:", instructions="Be " + random.choice(NAMES))',
        'RUN = secrets.token_hex(4)\nagent = Agent("sim:", instructions=RUN)',
        'dice = random.Random()\nagent = Agent("sim:", instructions=str(dice.random()))',
        'look = RawTool("look", f"Look {uuid.uuid4().hex}", {"type": "object"}, print)',
    ],
    "identity": [
        'agent = Agent("sim:", instructions=f"Object {id(NAMES)}")',
        'agent = Agent("sim:", instructions=f"Object {hash(\'a\')}")',
    ],
    "environment": [
        'agent = Agent("sim:", instructions=os.environ["ROLE"])',
        'agent = Agent("sim:", instructions=os.getenv("ROLE", "none"))',
        'agent = Agent("sim:", instructions=f"You are on {socket.gethostname()}")',
        'agent = Agent("sim:", instructions=f"You are in {Path.cwd()}, {platform.system()}, {sys.platform}")',
        'ROLE = os.environ.get("ROLE") or "none"\nagent = Agent("sim:", instructions=f"{ROLE}")',
        'ls = CommandTool("ls", "List " + os.getcwd(), ["ls"])',
    ],
    "unordered": [
        'agent = Agent("sim:", instructions=", ".join({"a", "b"}))',
        'agent = Agent("sim:", instructions=str(set(NAMES)))',
        'KINDS = {"a", "b"}\nagent = Agent("sim:", instructions="\\n".join(f"- {k}" for k in KINDS))',
        (
            'KINDS = {n.upper() for n in NAMES}\nwords = ""\nfor k in KINDS:\n    words += k\n'
            'agent = Agent("sim:", instructions=words)'
        ),
        (
            'def listed(kinds):\n    lines = []\n    for kind in kinds:\n        lines.append(kind)\n    return "".join(lines)\n'
            'agent = Agent("sim:", instructions=listed(frozenset(NAMES)))'
        ),
        'agent = Agent("sim:", instructions=" ".join(os.listdir(".")))',
        'agent = Agent("sim:", instructions=" ".join(p.name for p in Path(".").glob("*.md")))',
        'A, B = {"x": 1}, {"y": 2}\nagent = Agent("sim:", instructions=" ".join(A.keys() | B.keys()))',
        '@tool\ndef look(kind: Literal[tuple({"a", "b"})]) -> str:\n    "Look."\n    return kind',
        'KINDS = {"a", "b"}\n@tool\ndef look(kind: Annotated[str, "of " + ", ".join(KINDS)]) -> str:\n    "L."\n    return kind',
        (
            'from dataclasses import dataclass\n@dataclass\nclass Wanted:\n    kind: Annotated[str, f"{set(NAMES)}"]\n'
            'agent = Agent("sim:", output=Wanted)'
        ),
        'look = RawTool("look", "Look.", {"type": "object", "properties": {"k": {"enum": list(set(NAMES))}}}, print)',
        'def f() -> str:\n    "F."\ndef g() -> str:\n    "G."\nagent = Agent("sim:", tools={f, g})',
    ],
    "outside": [
        'agent = Agent("sim:", instructions=subprocess.check_output(["git", "log"], text=True))',
        'agent = Agent("sim:", instructions=subprocess.run(["ls"], capture_output=True, text=True).stdout)',
    ],
}
CLEAN = {
    "clock": [
        'agent = Agent("sim:", instructions="Be kind.")\nagent.run_sync(f"It is {datetime.now()}.")',
        'agent = Agent("sim:", instructions="Be kind.", facts=lambda: {"time": str(datetime.now())})',
        'agent = Agent("sim:", instructions="Be kind.", facts={"run": str(uuid.uuid4()), "day": str(date.today())})',
        '@tool\ndef now() -> str:\n    "The time."\n    return str(datetime.now())\nagent = Agent("sim:", tools=[now])',
        'agent = Agent("sim:", instructions=f"Since {datetime(2024, 5, 1)}, {time.strftime(\'%Y\', time.gmtime(0))}")',
        'started = time.time()\nagent = Agent("sim:", instructions="Be kind.", budget=None)\nprint(started)',
        'words = f"{date.today()}"\nwords = "Be kind."\nagent = Agent("sim:", instructions=words)',
        'def say(at):\n    at = "noon"\n    return at\nagent = Agent("sim:", instructions=say(datetime.now()))',
        'options = {"facts": {"day": time.ctime()}}\nagent = Agent("sim:", instructions="Be kind.", **options)',
        'def f() -> str:\n    return ""\nf.__doc__ = f"F, {date.today()}"\nagent = Agent("sim:")',
        'agent = Agent(f"sim:{date.today() and \'\'}", instructions="Be kind.")',
        '@tool\ndef look(since: datetime, kind: str = "a") -> str:\n    "Look."\n    return kind',
    ],
    "random": [
        'agent = Agent("sim:", instructions=f"Run {uuid.uuid5(uuid.NAMESPACE_DNS, \'x\')}")',
        'dice = random.Random(7)\nagent = Agent("sim:", instructions=str(dice.random()))',
        'random.seed(7)\nagent = Agent("sim:", instructions=random.choice(NAMES))',
    ],
    "identity": [
        'agent = Agent("sim:", instructions=hashlib.sha256(b"x").hexdigest())',
        'def id(thing):\n    return thing\nagent = Agent("sim:", instructions=id("x"))',
    ],
    "environment": [
        'key = os.environ.get("KEY")\nagent = Agent(os.environ.get("MODEL", "sim:"), instructions="Be kind.")',
        'agent = Agent("sim:", instructions=Path(os.path.abspath(__file__)).with_name("s.md").read_text())',
        ('with open(os.path.join(os.getcwd(), "s.md")) as file:\n    words = file.read()\n'
         'agent = Agent("sim:", instructions=words)'),
    ],
    "unordered": [
        'agent = Agent("sim:", instructions=", ".join(sorted({"a", "b"})))',
        'KINDS = {"a", "b"}\nwords = [k for k in NAMES if k in KINDS]\nagent = Agent("sim:", instructions=str(words))',
        'agent = Agent("sim:", instructions=f"{len(set(NAMES))} of them, {max({1, 2})}, { {1} }")',
        'KINDS = {"a", "b"}\nKINDS = sorted(KINDS)\nagent = Agent("sim:", instructions=", ".join(KINDS))',
        'agent = Agent("sim:", instructions=", ".join(dict.fromkeys(NAMES)))',
        'agent = Agent("sim:", instructions=json.dumps({n: 1 for n in set(NAMES)}, sort_keys=True))',
        'agent = Agent("sim:", instructions=" ".join(p.name for p in sorted(Path(".").glob("*.md"))))',
        'agent = Agent("sim:", instructions=" ".join(sorted(os.listdir("."))), tools=[])',
    ],
    "outside": [
        'subprocess.run(["true"], check=True)\nagent = Agent("sim:", instructions="Be kind.")',
    ],
}  # fmt: skip
