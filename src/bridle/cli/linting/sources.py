"""Tables of expressions that produce a volatile value, and of those that make a value stable, by qualified name.

Names are qualified after imports: with `from datetime import datetime as d`, `d.now` is
`datetime.datetime.now`.  Anything not listed counts as stable, because users turn off a lint with false alarms.
"""

import ast
from collections.abc import Mapping

CLOCK_CALLS = {
    "time.time", "time.time_ns", "time.monotonic", "time.monotonic_ns", "time.perf_counter",
    "time.perf_counter_ns", "time.process_time", "datetime.datetime.now", "datetime.datetime.utcnow",
    "datetime.datetime.today", "datetime.date.today", "pendulum.now", "pendulum.today", "arrow.now",
    "arrow.utcnow", "pandas.Timestamp.now", "pandas.Timestamp.today",
}  # fmt: skip
CLOCK_WITHOUT_ARGUMENTS = {
    "time.ctime": 0,
    "time.gmtime": 0,
    "time.localtime": 0,
    "time.asctime": 0,
    "time.strftime": 1,
}
"""Calls that return the current time unless a time is passed: the number of arguments without it."""
RANDOM_CALLS = {
    "uuid.uuid1", "uuid.uuid4", "uuid.uuid6", "uuid.uuid7", "os.urandom", "random.SystemRandom",
    "tempfile.mkdtemp", "tempfile.mkstemp", "tempfile.mktemp", "tempfile.NamedTemporaryFile",
    "tempfile.TemporaryDirectory",
    "ulid.new", "nanoid.generate", "shortuuid.uuid",
}  # fmt: skip
RANDOM_MODULES = ("random.", "secrets.", "numpy.random.")
SEEDED_RANDOM_CALLS = {
    "random.Random", "random.seed", "random.getstate", "numpy.random.seed", "numpy.random.default_rng",
    "numpy.random.RandomState", "secrets.compare_digest",
}  # fmt: skip
IDENTITY_CALLS = {"id", "hash"}
ENVIRONMENT_CALLS = {
    "os.getenv", "os.getenvb", "os.getcwd", "os.getcwdb", "os.getpid", "os.getppid", "os.getlogin",
    "os.uname", "os.cpu_count", "os.path.expanduser", "os.path.expandvars", "os.path.abspath",
    "os.path.realpath",
    "socket.gethostname", "socket.getfqdn", "getpass.getuser", "pathlib.Path.cwd", "pathlib.Path.home",
    "locale.getlocale", "locale.getdefaultlocale", "time.tzname", "shutil.get_terminal_size", "input",
}  # fmt: skip
ENVIRONMENT_MODULES = ("platform.", "os.environ.", "os.environb.")
ENVIRONMENT_VALUES = {
    "os.environ", "os.environb", "os.name", "sys.argv", "sys.platform", "sys.version", "sys.version_info",
    "sys.executable", "sys.path", "sys.prefix", "sys.implementation", "time.tzname", "time.timezone",
}  # fmt: skip
FOLDER_CALLS = {"os.listdir", "os.scandir", "os.walk", "glob.glob", "glob.iglob"}
FOLDER_METHODS = {"iterdir", "rglob", "glob"}
OUTSIDE_CALLS = {
    "subprocess.run", "subprocess.check_output", "subprocess.getoutput", "subprocess.Popen", "os.popen",
    "urllib.request.urlopen", "requests.get", "requests.post", "httpx.get", "httpx.post",
}  # fmt: skip
ORDERING_CALLS = {
    "sorted", "len", "min", "max", "sum", "any", "all", "bool", "isinstance", "heapq.nsmallest",
    "natsort.natsorted",
}  # fmt: skip
"""Calls whose result does not depend on the order of a set."""
FILE_READING_CALLS = {"open", "io.open", "json.load", "tomllib.load", "yaml.safe_load"}
FILE_READING_METHODS = {
    "read_text",
    "read_bytes",
    "read",
    "readline",
    "readlines",
    "exists",
    "is_file",
    "is_dir",
}
"""Reads of a file: its path may depend on the machine, its content counts as stable."""
SET_CALLS = {"set", "frozenset"}
SET_METHODS = {"keys", "items"}


def find_call_rule(name: str, call: ast.Call, *, seeded: bool) -> str:
    """The rule that a call violates, or empty.  `seeded`: the module seeds its random numbers."""
    if name in CLOCK_CALLS or len(call.args) + len(call.keywords) <= CLOCK_WITHOUT_ARGUMENTS.get(name, -1):
        return "clock"
    if name in RANDOM_CALLS:
        return "random"
    if name.startswith(RANDOM_MODULES) and name not in SEEDED_RANDOM_CALLS:
        return "" if seeded and not name.startswith("secrets.") else "random"
    if name in ("random.Random", "numpy.random.default_rng") and not call.args and not call.keywords:
        return "random"
    for rule, names in CALLS_BY_RULE.items():
        if name in names:
            return rule
    if name.startswith(ENVIRONMENT_MODULES):
        return "environment"
    if isinstance(call.func, ast.Attribute) and call.func.attr in FOLDER_METHODS:
        return "unordered"
    return ""


CALLS_BY_RULE: Mapping[str, set[str]] = {
    "identity": IDENTITY_CALLS,
    "environment": ENVIRONMENT_CALLS,
    "unordered": FOLDER_CALLS,
    "outside": OUTSIDE_CALLS,
}


def find_value_rule(name: str) -> str:
    return "environment" if name in ENVIRONMENT_VALUES else ""


def is_unordered(node: ast.Set) -> bool:
    """True unless the set has one item or only integers, whose hashes do not depend on the hash seed."""
    steady = all(isinstance(item, ast.Constant) and isinstance(item.value, int) for item in node.elts)
    return len(node.elts) > 1 and not steady


def sorts_keys(name: str, call: ast.Call) -> bool:
    return name.endswith(".dumps") and any(
        word.arg == "sort_keys" and isinstance(word.value, ast.Constant) and word.value.value is True
        for word in call.keywords
    )
