"""Data that packages carry: the text behind help(), scikit-learn's tables."""

import sys

import pytest
import torch

from natgrad.errors import InvalidInputError
from natgrad.experiments._data import shipped, text


def test_a_text_comes_back():
    found = text.encode("the cat sat")
    assert "".join(found.characters[i] for i in found.tokens.tolist()) == "the cat sat"


def test_an_empty_text_is_refused():
    with pytest.raises(InvalidInputError, match="empty"):
        text.encode("")


def test_labels_of_windows_are_what_follows():
    tokens = torch.arange(100)
    x, y = text.windows(tokens, length=7, stride=3)
    assert torch.equal(y, x + 1)
    assert x[1, 0] == 3
    assert int(y.max()) <= 99


def test_a_text_shorter_than_a_window_is_refused():
    with pytest.raises(InvalidInputError, match="longer text"):
        text.windows(torch.arange(5), length=5, stride=1)


def test_a_python_without_its_texts(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(InvalidInputError, match="pydoc_data"):
        text.documentation()


def test_diabetes_is_standardised():
    x, y = shipped.diabetes()
    table = torch.cat([x, y], dim=1).double()
    assert table.mean(0).abs().max() < 1e-6
    assert (table.std(0) - 1).abs().max() < 1e-6


def test_scikit_learn_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(InvalidInputError, match="scikit-learn"):
        shipped.digits()
