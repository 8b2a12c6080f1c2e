"""Files of trajectories: equal bytes for equal paths, and no changed bit unseen."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from natgrad.errors import InvalidInputError
from natgrad.flows import Trajectory


def sample() -> "Trajectory[dict[str, torch.Tensor]]":
    times = torch.tensor([0.0, 1.0], dtype=torch.float64)
    states = {"w": torch.tensor([[1.0], [2.0]], dtype=torch.bfloat16), "b": torch.ones(2, 1)}
    recorded = {"same memory": times, "angle": times + 2}
    return Trajectory(times, states, times + 1, recorded, seconds=0.5)


def same(a: "Trajectory[Any]", b: "Trajectory[Any]") -> bool:
    pairs = [(a.times, b.times), (a.losses, b.losses)]
    pairs += [(a.states[name], b.states[name]) for name in a.states]
    pairs += [(a.recorded[name], b.recorded[name]) for name in a.recorded]
    names = ("status", "detail", "method", "evaluations", "steps", "seconds")
    return (
        list(a.states) == list(b.states)
        and all(p.dtype == q.dtype and torch.equal(p, q) for p, q in pairs)
        and all(getattr(a, name) == getattr(b, name) for name in names)
    )


def test_equal_paths_make_equal_files(tmp_path) -> None:
    contents = set()
    for k in range(20):
        sample().save(tmp_path / f"{k}")
        contents.add((tmp_path / f"{k}").read_bytes())
    assert len(contents) == 1
    assert same(sample(), Trajectory.load(tmp_path / "0"))


def test_changed_bits_are_seen(tmp_path) -> None:
    """A changed file is refused, or gives what was written."""
    path = tmp_path / "path"
    sample().save(path)
    whole = path.read_bytes()
    random = np.random.default_rng(0)
    for where in range(len(whole)):
        changed = bytearray(whole)
        changed[where] ^= 1 << int(random.integers(8))
        path.write_bytes(changed)
        try:
            read = Trajectory.load(path)
        except InvalidInputError as error:
            assert "cannot be read as a trajectory" in str(error)  # noqa: PT017
            continue
        assert same(read, sample()), where


def test_files_of_the_first_version_have_no_checksum_and_are_read(tmp_path) -> None:
    made = sample()
    header = {"structure": "tensor", "status": "stalled", "detail": "", "method": "rk",
              "evaluations": 3, "steps": 2}  # fmt: skip
    tensors = {"times": made.times, "losses": made.losses, "states.0": made.states["b"].clone()}
    tensors["numbers"] = torch.tensor([0.0, 0.5], dtype=torch.float64)
    metadata = {"format": "natgrad trajectory 1", "header": json.dumps(header)}
    save_file({name: t.clone() for name, t in tensors.items()}, tmp_path / "old", metadata=metadata)
    read = Trajectory.load(tmp_path / "old")
    assert torch.equal(read.states, made.states["b"])
    assert (read.status, read.evaluations, read.seconds) == ("stalled", 3, 0.5)


@pytest.mark.parametrize("text", ["{}", "3", "[" * 100_000, '{"format": "natgrad trajectory 3"}'])
def test_other_headers_are_refused_in_a_sentence(text, tmp_path) -> None:
    save_file({"times": torch.zeros(1)}, tmp_path / "x", metadata={"natgrad": text})
    with pytest.raises(InvalidInputError, match="cannot be read as a trajectory"):
        Trajectory.load(tmp_path / "x")
