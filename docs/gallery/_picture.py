"""What the examples share: options of the command line, and where pictures go."""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch

torch.set_default_dtype(torch.float64)


def options(steps: int) -> argparse.Namespace:
    """Return the number of steps and the folder for pictures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "pictures")
    found = parser.parse_args()
    found.out.mkdir(parents=True, exist_ok=True)
    return found


def save(figure: plt.Figure, path: Path) -> None:
    """Write a picture."""
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    print(f"picture in {path}")
