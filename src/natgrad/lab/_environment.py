"""Where a result was computed: versions, threads, processor, and the revision of the sources."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_PACKAGES = ("natgrad", "torch", "numpy", "scipy", "matplotlib")
_PATIENCE = 120.0  # seconds for git, on a slow network disk or a busy machine


def environment() -> dict[str, Any]:
    """Return versions, torch's threads in this process, processor, cores and platform.

    `cores` counts those that this process may use; a batch system often grants fewer than exist.

    Example:
        >>> sorted(environment())[:4]
        ['cores', 'cpu', 'matplotlib', 'natgrad']
    """
    import torch

    return {
        "python": platform.python_version(),
        **{name: _version(name) for name in _PACKAGES},
        "threads": torch.get_num_threads(),
        "cpu": _cpu(Path("/proc/cpuinfo")),
        "cores": cores(),
        "platform": platform.platform(),
    }


def revision(source: Path = Path(__file__).parents[1]) -> str | None:
    """Return the git revision of the package's sources, or None if there is none.

    "+changes" follows it when the sources differ from that revision. The package's files must be
    tracked: a package installed inside another repository has no revision. If git does not answer
    in time, the result is "unknown" with the reason, which differs from having no revision.
    """
    try:
        tracked = _git(source, "ls-files", "--error-unmatch", "__init__.py")
        head = _git(source, "rev-parse", "HEAD") if tracked else None
        changes = _git(source, "status", "--porcelain", "--", ".") if head else None
    except subprocess.TimeoutExpired:
        return f"unknown: git gave no answer within {_PATIENCE:g} s"
    if not head:
        return None
    if changes is None:
        return f"{head}+unknown: git cannot tell whether the sources differ from it"
    return f"{head}+changes" if changes else head


def _git(folder: Path, *arguments: str) -> str | None:
    """Return what git prints, or None if it fails or is not there.

    Raises:
        subprocess.TimeoutExpired: If it takes too long.
    """
    surroundings = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE,
            env=surroundings,  # in a git hook these variables would point to another repository
        )
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:  # the package is used from its sources, not installed
        return None


def _cpu(cpuinfo: Path) -> str:
    try:
        lines = cpuinfo.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
