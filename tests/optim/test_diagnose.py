"""What `diagnose` says, against the model itself."""

import pytest
import torch
from torch.nn import LSTM, Linear, Module, Sequential

from natgrad import Categorical, Gaussian
from natgrad.errors import InvalidInputError
from natgrad.optim import NGD, Quadratic, StepStatistics, diagnose
from natgrad.optim._trial import held_bytes
from tests.helpers import randn
from tests.optim.nets import Scale, mlp, seeded, train, weights_of
from tests.optim.zoo import TASKS


def test_it_names_layers_and_what_is_left_out():
    model = seeded(lambda: Sequential(Linear(3, 4), Scale(4), Linear(4, 2)))
    before = weights_of(model)
    model[0].weight.grad = torch.ones_like(model[0].weight)
    found = diagnose(model, Gaussian(), randn(30, 3, seed=1))
    assert [(r.name, r.kind, r.shape) for r in found.layers] == [
        ("0", "Linear", (4, 4)),
        ("2", "Linear", (2, 5)),
    ]
    assert list(found.uncovered) == ["1.weight"]
    assert found.parameters == sum(p.numel() for p in model.parameters())
    assert "Scale is not a supported layer" in str(found)
    for a, b in zip(before, weights_of(model), strict=True):
        assert torch.equal(a, b)
    assert torch.equal(model[0].weight.grad, torch.ones_like(model[0].weight))
    assert model[2].weight.grad is None
    assert not model._forward_hooks


def test_condition_numbers_are_those_of_the_inputs():
    x = randn(200, 3, seed=2) * torch.tensor([1.0, 10.0, 0.0])
    found = diagnose(seeded(lambda: mlp(3, 4, 2, bias=False)), Gaussian(), x)
    moment = (x.mT @ x / 200)[:2, :2]
    values = torch.linalg.eigvalsh(moment)
    assert found.layers[0].input_rank == 2
    assert found.layers[0].inputs == pytest.approx(float(values[1] / values[0]), rel=1e-6)
    assert found.layers[1].errors == pytest.approx(1.0)  # the Gaussian's own metric


def test_bytes_are_those_of_the_state():
    model, criterion = seeded(lambda: mlp(3, 8, 3), dtype=torch.float32), Categorical()
    x = randn(50, 3, seed=3).float()
    found = diagnose(model, criterion, x)
    optimizer = NGD(model, criterion)
    train(optimizer, criterion, x, torch.zeros(50, dtype=torch.long), 1)

    def count(state: object) -> int:
        if isinstance(state, torch.Tensor):
            return state.nbytes
        return sum(map(count, state.values())) if isinstance(state, dict) else 0

    state = optimizer.state_dict()["natural"]
    assert found.state_bytes == count({k: v for k, v in state.items() if k != "generator"})
    # Two factors and their inverses, averages of gradients and weights: four bytes each number.
    # The last step: two.
    factors = 2 * (4**2 + 8**2 + 9**2 + 3**2)
    assert sum(layer.state_bytes for layer in found.layers) == 4 * factors
    assert found.state_bytes == 4 * factors + (4 + 4 + 2) * found.parameters
    assert found.bytes_per_parameter == found.state_bytes / found.parameters


@pytest.mark.parametrize("name", ["translator", "vae", "heads", "recommender", "resnet"])
def test_bytes_are_those_after_training_whatever_the_loss(name):
    """The loss of the user's own loop; weights, buffers and random numbers stay as they are."""
    torch.manual_seed(0)
    task = TASKS[name]()
    rows = torch.arange(task.batch)
    before = [t.clone() for t in task.model.state_dict().values()]
    state = torch.random.get_rng_state()
    found = diagnose(task.model, task.criterion, loss=lambda: task.loss(rows))
    assert all(map(torch.equal, before, task.model.state_dict().values()))
    assert torch.equal(state, torch.random.get_rng_state())
    assert 0 < found.plain < found.seconds
    optimizer = NGD(task.model, task.criterion)
    task.steps = 8
    task.train(optimizer)
    assert found.state_bytes == held_bytes(optimizer.state_dict()["natural"])


def test_x_and_loss_exclude_each_other():
    model = mlp(2, 3, 1)
    for given in ({}, {"x": torch.ones(3, 2), "loss": lambda: None}):
        with pytest.raises(InvalidInputError, match="either x"):
            diagnose(model, Gaussian(), **given)
    with pytest.raises(InvalidInputError, match="one number to differentiate"):
        diagnose(model, Gaussian(), loss=lambda: None)


class Recurrent(Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = LSTM(3, 4, batch_first=True), Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.lstm(x)[0][:, -1])
        return out


def test_recurrent_networks_with_sliced_outputs_train():
    model, criterion = seeded(Recurrent), Gaussian()
    optimizer = NGD(model, criterion, strict=True)
    losses = train(optimizer, criterion, randn(20, 5, 3, seed=4), randn(20, 2, seed=5), 10)
    assert losses[-1] < losses[0]


def test_scalars_go_to_any_logger():
    model, criterion, seen = seeded(lambda: mlp(3, 4, 2)), Gaussian(), []
    optimizer = NGD(model, criterion, step_length=Quadratic())
    optimizer.register_step_post_hook(
        lambda opt, args, kwargs: seen.append((opt.statistics.step, opt.statistics.scalars()))
    )
    train(optimizer, criterion, randn(9, 3, seed=6), randn(9, 2, seed=7), 2)
    assert [step for step, _ in seen] == [1, 2]
    last = seen[-1][1]
    assert last["loss"] == optimizer.statistics.loss
    assert {"ratio", "damping", "share", "seconds/inverses"} <= set(last)
    assert all(type(value) is float for value in last.values())
    assert "ratio" not in StepStatistics().scalars()


def test_exact_steps_are_recommended_where_one_side_is_small():
    def recommended(n: int, *widths: int) -> str:
        found = diagnose(mlp(*widths), Gaussian(), torch.randn(n, widths[0]))
        assert ("GaussNewton" in str(found)) is (found.recommends == "GaussNewton")
        return found.recommends

    assert recommended(300, 2, 40, 40, 1) == "GaussNewton"  # 300 outputs
    assert recommended(3000, 2, 20, 1) == "GaussNewton"  # 81 parameters
    assert recommended(1100, 2, 40, 40, 1) == "NGD"


def test_a_raw_table_is_noted_at_the_first_step():
    """Columns of 50 and 200 with targets of 150 are said to need standardizing; scaled ones not."""
    x, y = randn(60, 3, seed=1), randn(60, 1, seed=2)
    for inputs, targets, words in (
        (x * torch.tensor([1.0, 5.0, 30.0]) + 50, 150 + 70 * y, ["inputs are", "targets are"]),
        (x, y, []),
        (x * torch.tensor([1e-4, 1.0, 1.0]), y, ["inputs are"]),
    ):
        for criterion in (Gaussian(), torch.nn.MSELoss()):
            optimizer = NGD(seeded(lambda: mlp(3, 4, 1)), criterion)
            criterion(optimizer.model(inputs), targets).backward()
            optimizer.step()
            notes = [note for note in optimizer.statistics.notes if "standardized" in note]
            assert len(notes) == len(words)
            assert all(word in note for word, note in zip(words, notes, strict=True))
