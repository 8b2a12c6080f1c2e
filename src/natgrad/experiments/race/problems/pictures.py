"""Problems on pictures: MNIST, Fashion-MNIST, scikit-learn's digits."""

from dataclasses import replace

import torch

from natgrad.data import mnist
from natgrad.experiments._data import fashion, shipped
from natgrad.experiments.race.problems import networks
from natgrad.experiments.race.problems.problem import Part, Problem
from natgrad.experiments.race.problems.tables import shuffled

AUTOENCODER = (784, 400, 200, 100, 50, 100, 200, 400, 784)


def autoencoder() -> Problem:
    """MNIST as its own labels."""
    digits = mnist.load()
    x, held = digits.train_images[:-2000], digits.train_images[-2000:]
    return Problem(
        "squared",
        lambda: networks.perceptron(*AUTOENCODER),
        Part(x, x),
        Part(held, held),
        Part(digits.test_images, digits.test_images),
        (50, 250, 500, 1000),
    )


def classifier() -> Problem:
    """Fashion-MNIST with its ten labels, for a convolutional network."""
    clothes = fashion.load()
    x, y = clothes.train_images, clothes.train_labels
    return Problem(
        "categories",
        networks.Convolutions,
        Part(x[:-2000], y[:-2000]),
        Part(x[-2000:], y[-2000:]),
        Part(clothes.test_images, clothes.test_labels),
        (50, 125, 250, 500),
    )


def variational() -> Problem:
    """MNIST with gray values as probabilities."""
    base = autoencoder()
    return replace(
        base, kind="variational", network=networks.Variational, batches=(50, 125, 250, 500)
    )


def residual() -> Problem:
    """The same for a residual network with batch normalization."""
    return replace(classifier(), network=networks.ResNet)


def picture() -> Problem:
    """Brightness at points of a sheet of 8×8 pictures, a quarter of the points held out."""
    clothes = fashion.load()
    sheet = clothes.train_images[:64].reshape(8, 8, 28, 28).transpose(1, 2).reshape(224, 224)
    places = torch.linspace(-1, 1, 224)
    x = torch.cartesian_prod(places, places)
    y = (2 * sheet - 1).reshape(-1, 1)
    train, validation, test = shuffled(len(x)).tensor_split([37632, 43904])
    return Problem(
        "squared",
        lambda: networks.siren(2, 264, 4),
        Part(x[train], y[train]),
        Part(x[validation], y[validation]),
        Part(x[test], y[test]),
        (250, 500, 1000, 2000),
    )


def digits() -> Problem:
    """The digits of 8×8 pixels as their own labels."""
    x, _ = shipped.digits()
    train, validation, test = (x[rows] for rows in shuffled(len(x)).tensor_split([1200, 1500]))
    return Problem(
        "squared",
        lambda: networks.perceptron(64, 32, 10, 32, 64),
        Part(train, train),
        Part(validation, validation),
        Part(test, test),
        (20, 50, 100, 400),
    )
