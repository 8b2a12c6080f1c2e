"""Factors of a linear network by propagation, [BLH18] (14)–(15)."""

from torch import Tensor
from torch.nn import Identity, Linear, Module, Sequential

from natgrad.errors import UnsupportedError
from natgrad.optim._curvature.factor import symmetric
from natgrad.optim._layers.coverage import Coverage
from natgrad.optim._layers.linear import Layer
from natgrad.parametrizations.propagation import backward_covariances, forward_covariances


class Chain:
    """A model that is a chain of linear layers.

    Args:
        model: The model.
        coverage: Its layers.

    Raises:
        UnsupportedError: If the model is anything but linear layers in sequence.
    """

    def __init__(self, model: Module, coverage: Coverage) -> None:
        for name, module in model.named_modules():
            if type(module) not in (Sequential, Linear, Identity):
                raise UnsupportedError(
                    "source='propagated' needs a linear network, torch.nn.Sequential of "
                    f"torch.nn.Linear, but {name or 'the model'!r} is a {type(module).__name__}. "
                    "Try source='exact' or 'sampled'."
                )
            if type(module) is Linear and name not in coverage.layers:
                raise UnsupportedError(
                    f"source='propagated' needs every layer trainable, but {name!r} is not."
                )
        self.layers: list[Layer] = list(coverage.layers.values())

    def factors(self, inputs: Tensor, output: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return (Λᵢ, Λ̃ᵢ) of every layer.

        Args:
            inputs: Λ₁, lower triangle; the last row is for the bias, if the first layer has one.
            output: Fisher of the outputs.
        """
        sigma = symmetric(inputs)
        biased = any(layer.bias is not None for layer in self.layers)
        if biased and self.layers[0].bias is None:
            raise UnsupportedError(
                "source='propagated' needs a bias in the first layer if a later one has it: the "
                "mean of the inputs is not known otherwise."
            )
        weights = [layer.weight.detach().to(sigma) for layer in self.layers]
        maps = [_affine(layer, w) for layer, w in zip(self.layers, weights, strict=True)]
        forward = forward_covariances(maps if biased else weights, sigma)
        forward = [
            f if layer.bias is not None else f[: layer.fan_in, : layer.fan_in]
            for f, layer in zip(forward, self.layers, strict=True)
        ]
        backward = backward_covariances(weights, output.to(sigma))
        return list(zip(forward, backward, strict=True))


def _affine(layer: Layer, weight: Tensor) -> Tensor:
    """Return the map from (x, 1) to (Wx + b, 1)."""
    out = weight.new_zeros(weight.shape[0] + 1, weight.shape[1] + 1)
    out[:-1, :-1], out[-1, -1] = weight, 1.0
    if layer.bias is not None:
        out[:-1, -1] = layer.bias.detach()
    return out
