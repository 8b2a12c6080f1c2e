"""Results show themselves: tables for notebooks, axes for pictures."""

import pytest
import torch
from matplotlib import pyplot
from matplotlib.axes import Axes

import natgrad as ng
from natgrad._show import as_table
from natgrad.errors import InvalidInputError


@pytest.fixture
def ax():
    figure, axes = pyplot.subplots()
    yield axes
    pyplot.close(figure)


def test_tables_are_escaped():
    assert "<b>" not in as_table("<b>", [("<b>", "<b>")], ["<b>"])


def test_a_trajectory(ax):
    x = torch.tensor([[1.0, 0.0], [0.0, 2.0]]).double()
    y = torch.tensor([1.0, 3.0]).double()
    flow = ng.integrate(
        ng.euclidean,
        ng.Gaussian(),
        ng.Direct(),
        torch.zeros(2).double(),
        (x, y),
        until=100.0,
        record={"norm": lambda w: w.norm(), "w": lambda w: w},
    )
    assert "tensor" not in repr(flow)
    assert flow.status.value in repr(flow)
    assert "parameters" in flow._repr_html_()
    assert flow.plot(ax=ax) is ax
    (line,) = ax.lines
    assert line.get_ydata()[-1] == pytest.approx(float(flow.losses[-1]))
    assert flow.plot("norm").get_ylabel() == "norm"
    with pytest.raises(InvalidInputError, match="no diagnostic 'nom'"):
        flow.plot("nom")
    with pytest.raises(InvalidInputError, match="only numbers"):
        flow.plot("w")
    with pytest.raises(InvalidInputError, match="matplotlib axes"):
        flow.plot(ax=3)
    pyplot.close("all")


def test_limits(ax):
    x = torch.tensor([[1.0, 0.5], [-0.5, 2.0]]).double()
    limit = ng.limits.max_margin(x, torch.tensor([1.0, -1.0]).double(), 2)
    assert limit.certificate_name in limit._repr_html_()
    assert limit.plot(ax=ax) is ax
    matrix = ng.limits.nuclear_norm(
        torch.tensor([[0, 0], [0, 1], [1, 0]]), torch.tensor([4.0, 2.0, 2.0]).double(), (2, 2)
    )
    assert isinstance(matrix.plot(), Axes)
    pyplot.close("all")


def test_a_diagnosis(ax):
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    found = ng.diagnose(net, ng.Gaussian(), torch.randn(40, 3))
    assert found._repr_html_().count("<tr>") == 3
    assert found.plot(ax=ax) is ax
    assert [text.get_text() for text in ax.get_yticklabels()] == [r.name for r in found.layers]
