"""Networks of the kinds that people bring, trained by changing two lines of a loop with Adam."""

import pytest
import torch

from natgrad.optim import NGD
from tests.optim.zoo import TASKS

# The best of them is rarely the first or the last.
RATES = (0.01, 0.03, 0.1)


@pytest.mark.parametrize("name", TASKS)
def test_it_ends_at_or_below_the_best_of_three_adams(name):
    """After as many steps, from the same weights, on the same batches; default settings."""
    losses = []
    for rate in (None, *RATES):
        torch.manual_seed(0)
        task = TASKS[name]()
        if rate is None:
            optimizer = NGD(task.model, task.criterion, strict=True)
        else:
            optimizer = torch.optim.Adam(task.model.parameters(), lr=rate)
        losses.append(task.train(optimizer))
        if rate is None:
            assert not any("equal shares" in note for note in optimizer.statistics.notes)
            assert not any("cannot be measured" in note for note in optimizer.statistics.notes)
    natural, *adam = losses
    assert natural <= min(adam)
