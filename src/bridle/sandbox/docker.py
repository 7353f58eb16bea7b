"""Runs commands in a new Docker container each, by the command line of docker.

The image must have the programs that the tools name.  launcher/container.py ends the container with its command.
"""

import json
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from bridle.ports.held_folder import HeldFolder
from bridle.ports.sandbox import SandboxedCommand, SandboxLimits
from bridle.values.errors import MisuseError

from .local import (
    BOOT,
    NOT_RUN,
    PRIVATE_TMP,
    check_workspace,
    find_python,
    find_source_folder,
    resolve_folder,
)
from .protected_paths import ProtectedPaths


class DockerSandbox:
    """A container of `image` per command: no network, read-only root, the workspace mounted at its own path."""

    name = "docker"

    def __init__(
        self,
        image: str,
        workspace: str | os.PathLike[str] = ".",
        *,
        network: bool = False,
        limits: SandboxLimits | None = None,
        program: str = "docker",
    ) -> None:
        if not image or image.startswith("-"):
            raise MisuseError(f"{image!r} is not the name of an image")
        self.workspace = Path(workspace).expanduser().resolve()
        # guard: docker-workspace-checked
        check_workspace(self.workspace)
        self._held = HeldFolder(self.workspace, "the workspace")
        self._protected = ProtectedPaths(self.workspace)
        self._image, self._network, self._program = image, network, program
        self._limits = limits or SandboxLimits()

    def wrap(
        self, argv: Sequence[str], *, cwd: str | None, environment: Mapping[str, str]
    ) -> SandboxedCommand:
        self._held.check_path()
        folder = resolve_folder(self.workspace, cwd)
        limits, container = self._limits, f"bridle-{secrets.token_hex(8)}"
        words = [
            self._program, "run", "--rm", f"--name={container}", "--init", "--interactive", "--read-only",
            "--cap-drop=ALL", "--security-opt=no-new-privileges", f"--network={'bridge' if self._network else 'none'}",
            f"--memory={limits.memory_bytes}", f"--memory-swap={limits.memory_bytes}",
            f"--pids-limit={limits.processes}", f"--ulimit=fsize={limits.file_bytes}", "--ulimit=core=0",
            f"--user={os.getuid()}:{os.getgid()}", f"--tmpfs={PRIVATE_TMP}:rw,exec,mode=1777,size={limits.tmp_bytes}",
            f"--mount=type=bind,source={self.workspace},target={self.workspace}", f"--workdir={folder}",
        ]  # fmt: skip
        protected = self._protected.find()
        # guard: docker-protected-paths
        for path in protected:
            words.append(f"--mount=type=bind,source={path},target={path},readonly")
        for name in environment:
            if name not in ("HOME", "PATH", "TMPDIR"):
                words.append(f"--env={name}")  # docker takes the value from its own environment
        words += [f"--env=HOME={PRIVATE_TMP}", "--", self._image, *argv]
        remove = [self._program, "rm", "--force", container]
        spec = {
            "words": words,
            "remove": remove,
            "workspace": str(self.workspace),
            "protected": protected,
            "identities": {str(self.workspace): self._held.identity},
        }
        made = (find_python(), "-I", "-S", "-c", BOOT, find_source_folder(), "container", json.dumps(spec))
        return SandboxedCommand(argv=made, environment=environment, not_run=NOT_RUN)
