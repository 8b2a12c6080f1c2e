"""kfac-jax as a peer: its environment, created once, and its cell."""

import json
import os
import subprocess
import tempfile
import venv
from pathlib import Path

import numpy as np
from torch.nn import Linear

from natgrad.data.mnist import cache
from natgrad.errors import InvalidInputError
from natgrad.experiments.race import _clock
from natgrad.experiments.race.entrants import kfac_jax_child
from natgrad.experiments.race.problems import load
from natgrad.experiments.race.training import Run
from natgrad.lab.cell import Result

PINS = (
    "absl-py==2.5.1",
    "attrs==26.1.0",
    "chex==0.1.92",
    "distrax==0.1.9",
    "dm-tree==0.1.10",
    "immutabledict==4.3.1",
    "jax==0.7.0",
    "jaxlib==0.7.0",
    "kfac-jax==0.0.8",
    "ml_dtypes==0.6.0",
    "numpy==2.4.6",
    "opt_einsum==3.4.0",
    "optax==0.2.8",
    "scipy==1.17.1",
    "tfp-nightly==0.26.0.dev20261027",
)
"""Packages of its environment; kfac-jax 0.0.8 needs jax 0.7.0 or earlier."""

_MINUTES = 15  # for pip to finish
_SPARE = 1200.0  # seconds beyond the budget: compilation takes minutes on a busy machine


class PeerUnavailableError(InvalidInputError):
    """The environment of the peer cannot be created, or does not work."""


def environment(folder: Path | None = None) -> Path:
    """Return the interpreter of the peer's environment, made in natgrad's cache the first time.

    Raises:
        PeerUnavailableError: If it cannot be made: no network, another platform.
    """
    if not hasattr(os, "sched_setaffinity"):
        raise PeerUnavailableError("kfac-jax can be held to one core only on Linux.")
    folder = cache().with_name("kfac-jax") if folder is None else folder
    python = folder / "bin" / "python"
    mark = folder / "pins.txt"
    wanted = "\n".join(PINS)
    if not (mark.is_file() and mark.read_text() == wanted and python.exists()):
        try:
            venv.create(folder, with_pip=True, clear=True)
            install = [str(python), "-m", "pip", "install", "--quiet", *PINS]
            subprocess.run(install, check=True, capture_output=True, timeout=60 * _MINUTES)
            mark.write_text(wanted)
        except (OSError, subprocess.SubprocessError) as error:
            raise PeerUnavailableError(
                f"the environment of kfac-jax could not be made in {folder}: {_why(error)}"
            ) from error
    return python


def kfac(run: Run) -> Result:
    """Return the curve of kfac-jax on an autoencoder, from the others' initial weights.

    Raises:
        PeerUnavailableError: If its process fails.
    """
    assert _clock.NOMINAL > 0  # the process loads both files, so the cell depends on them
    problem = load(run.problem)
    layers = [m for m in problem.make(run.seed).modules() if isinstance(m, Linear)]
    arrays = {f"weight{i}": layer.weight.detach().numpy() for i, layer in enumerate(layers)}
    arrays |= {f"bias{i}": layer.bias.detach().numpy() for i, layer in enumerate(layers)}
    for part in ("train", "validation", "test"):
        arrays[part] = getattr(problem, part).x.numpy()
    job = {
        "layers": len(layers),
        "batch": run.settings.batch,
        "damping": run.settings.damping,
        **{name: getattr(run, name) for name in ("seed", "budget", "points", "test")},
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.savez(folder / "data.npz", **arrays)  # type: ignore[arg-type]
        (folder / "job.json").write_text(json.dumps(job))
        command = [str(environment()), "-I", kfac_jax_child.__file__, str(folder)]
        variables = {
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "JAX_PLATFORMS": "cpu",
        }
        try:
            subprocess.run(
                command,
                check=True,
                capture_output=True,
                timeout=_SPARE + 10 * run.budget,
                env=os.environ | variables,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise PeerUnavailableError(f"kfac-jax failed: {_why(error)}") from error
        with np.load(folder / "curve.npz") as curve:
            return {key: curve[key] for key in curve.files}


def _why(error: Exception) -> str:
    """Return the last line of a process's standard error, or the error itself."""
    output = getattr(error, "stderr", None) or b""
    lines = [line for line in output.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else str(error)
