"""Every argument of the laboratory poisoned, one at a time: each gets one typed sentence."""

import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from natgrad.errors import NatgradError
from natgrad.flows import Trajectory
from natgrad.lab import registry
from natgrad.lab._store import config_file
from natgrad.lab._store.cleaning import leftovers
from natgrad.lab._store.folder import RunFolder
from natgrad.lab._store.store import Identity, Store, decode, encode, identify
from natgrad.lab.arrays import Arrays
from natgrad.lab.cell import Cell, canonical, find
from natgrad.lab.claim import Claim, over_seeds
from natgrad.lab.engines import Serial, start_engine
from natgrad.lab.report import write_report
from natgrad.lab.sweep import Sweeper

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch calls these kinds experimental, or old
    ODD = [
        torch.eye(8).to_sparse(),
        torch.eye(8).to_sparse_csr(),
        torch.quantize_per_tensor(torch.ones(8, 2), 0.1, 0, torch.qint8),
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    ]
POISON: list[Any] = [
    None, object(), "text", math.nan, math.inf, -1, 0, True, [], {}, 1j, 10**400, -(10**400), (),
    b"x", set(), len, int, [[1, 2], [3]], [None], ["a"], 1e308, 2.5, *ODD,
    torch.ones(8, 2, device="meta"), torch.ones(8, 2, dtype=torch.complex64),
    torch.ones(8, 2).bfloat16(), torch.tensor(1.0), torch.ones(2, 2, 2), torch.ones(0, 2),
    torch.full((8, 2), math.nan), torch.ones(8, 2, requires_grad=True),
    np.array([object(), 1], dtype=object), np.array(["a", "b"]), np.ones((8, 2), complex),
]  # fmt: skip

IDENTITY = Identity("m:f", "{}", "0", "2")
CLAIM: dict[str, Any] = {
    "id": "a", "statement": "s", "source": "n", "value": 1.0, "relation": "<=", "bound": 1.0,
    "sd": None, "presets": ("paper",),
}  # fmt: skip


def arrays() -> Arrays:
    return Arrays(n=[1, 2])


def store() -> Store:
    return Store(Path("store"))


CALLS: dict[str, Callable[[Any], object]] = {
    "coordinates": lambda p: Arrays(n=p),
    "name of an array": lambda p: arrays().add(p, [1, 2], "n"),
    "values of an array": lambda p: arrays().add("x", p, "n"),
    "name of an axis": lambda p: arrays().add("x", [1, 2], p),
    "an array by name": lambda p: arrays()[p],
    "CSV": lambda p: arrays().csv(p),
    "save arrays": lambda p: arrays().save(p),
    "load arrays": lambda p: Arrays.load(p),
    "config": canonical,
    "function by name": find,
    "over seeds": over_seeds,
    "statistic": lambda p: over_seeds([1.0, 2.0], p),
    **{
        f"claim, {name}": lambda p, name=name: Claim(**(CLAIM | {name: p})).to_json("paper")  # type: ignore[misc]
        for name in CLAIM
    },
    "config as TOML": config_file.dump,
    "config from TOML": config_file.parse,
    "report": lambda p: RunFolder(p).report(),
    "arrays of a run": lambda p: RunFolder(p).arrays(),
    "store": Store,
    "key": lambda p: store().get(p),
    "identify": identify,
    "result": lambda p: encode(IDENTITY, p, 0.1, ""),
    "array of a result": lambda p: encode(IDENTITY, {"x": p}, 0.1, ""),
    "bytes": decode,
    "engine by name": lambda p: start_engine(p).close(),
    "workers": lambda p: start_engine("local", workers=p).close(),
    "the worker": lambda p: start_engine("serial", workers=p).close(),
    "scheduler": lambda p: p is None or start_engine("serial", scheduler=p).close(),
    "engine": lambda p: Sweeper(p, store()),
    "where to store": lambda p: Sweeper(Serial(), p),
    "cells": lambda p: Sweeper(Serial(), store())(p),
    "config of a cell": lambda p: Sweeper(Serial(), store())([Cell(canonical, p)]),
    "folder to clean": leftovers,
    "experiment by name": registry.experiment,
    "experiment": registry.register,
    "folder to report": write_report,
    "trajectory": Trajectory.load,
}


@pytest.mark.parametrize("name", CALLS)
def test_poison_gets_a_sentence(name, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    raw = []
    for poison in POISON:
        try:
            CALLS[name](poison)
        except NatgradError as error:
            if len(str(error).splitlines()) != 1:
                raw.append(str(error))
        except Exception as error:
            raw.append(f"{type(error).__name__}: {error}")
    assert raw == []
