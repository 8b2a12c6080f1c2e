"""How far a reader travels to follow one step: the files that a step calls into, in order."""

import sys
from itertools import pairwise
from pathlib import Path
from types import FrameType

import torch
from torch.nn import Linear, Sequential, Tanh

import natgrad as ng

HOME = str(Path(ng.__file__).parent)


def test_one_step_is_followed_through_few_files() -> None:
    torch.manual_seed(0)
    model = Sequential(Linear(5, 8), Tanh(), Linear(8, 3))
    x, y = torch.randn(64, 5), torch.randint(0, 3, (64,))
    criterion = ng.Categorical()
    optimizer = ng.NGD(model, criterion)

    def backward() -> None:
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()

    backward()
    optimizer.step()
    backward()
    walk: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(HOME):
            walk.append(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        optimizer.step()
    finally:
        sys.setprofile(None)
    assert optimizer.statistics.refreshed
    changes = sum(before != after for before, after in pairwise(walk))
    files = {Path(name).relative_to(HOME) for name in walk}
    assert changes <= 100, changes
    assert len(files) <= 12, sorted(map(str, files))
