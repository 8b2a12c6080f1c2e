"""Where the errors come from whose second moments estimate the Fisher."""

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor

from natgrad.likelihoods import Likelihood

Source = Literal["sampled", "exact", "empirical", "propagated"]
"""`sampled`: labels drawn from the model, [BLH18] §5. `exact`: every column of the Fisher's root.
`empirical`: the true labels, which is *not* the Fisher. `propagated`: eq. 14–15, linear networks.
"""


def output_errors(
    likelihood: Likelihood,
    output: Tensor,
    y: Tensor | None,
    source: Source,
    samples: int,
    generator: torch.Generator,
) -> Iterator[Tensor]:
    """Yield errors at the outputs, in their shape; the Fisher is the sum of their squares.

    Unreduced: the factor of the reduction is left to the caller.

    Example:
        >>> from natgrad import Bernoulli
        >>> f = torch.zeros(1, 1)
        >>> [e.item() for e in output_errors(Bernoulli(), f, None, "exact", 1, torch.Generator())]
        [0.5]
    """
    if source == "exact":
        root = likelihood.root(output)
        for r in range(root.log_weight.shape[1]):
            column = torch.zeros_like(root.log_weight)
            column[:, r] = torch.exp(root.log_weight[:, r])
            yield root.transpose(column).reshape(output.shape)
    elif source == "empirical":
        assert y is not None
        yield likelihood.gradient(output, y) / likelihood.scale(len(output))
    else:
        for _ in range(samples):
            errors = likelihood.sampled_errors(output, generator=generator)
            yield errors / samples**0.5 if samples > 1 else errors
