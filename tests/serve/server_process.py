"""`bridle serve` in a process of its own, which a test may kill and start again at the same port."""

import json
import os
import signal
from pathlib import Path

from bridle.serve import Client
from tests.suite import listening
from tests.suite.command import start_bridle
from tests.suite.patience import PATIENCE_SECONDS

AGENTS = Path(__file__).with_name("process_agents.py")


def _environment():
    """Without the witness of requests: a process that is killed between sending and hearing one leaves half of it."""
    return {name: value for name, value in os.environ.items() if name != listening.FILE}


class ServerProcess:
    def __init__(self, folder, port, *options, store="log.db", agents=AGENTS, environment=None):
        self.folder, self.port, self.options, self.store = folder, port, options, store
        self.agents, self.environment = agents, environment or {}
        self.process, self.url = None, f"http://127.0.0.1:{port}"

    def start(self):
        """Start the server and wait until it says that it is ready."""
        self.process = start_bridle(
            "serve", self.agents, "--json", "--store", self.store, "--port", str(self.port), *self.options,
            cwd=self.folder,
            environment={**_environment(), "XDG_CONFIG_HOME": str(self.folder), **self.environment},
        )  # fmt: skip
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        assert json.loads(line)["url"] == self.url
        return Client(self.url)

    def kill(self):
        self.process.kill()
        self.process.communicate()

    def close(self):
        """Kill the server if it is alive, and close its pipes."""
        if self.process is not None:
            self.process.close()

    def stop(self):
        """Ask the server to stop; returns what it wrote."""
        self.process.send_signal(signal.SIGTERM)
        _, err = self.process.communicate(timeout=PATIENCE_SECONDS)
        return err

    def read_memory(self):
        """Resident memory of the server, in bytes."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("the process has no memory")
