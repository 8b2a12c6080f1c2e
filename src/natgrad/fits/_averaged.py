"""Averages of completions: over folds that stop each other's flows, and over centers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from natgrad._checks import integer
from natgrad.errors import InvalidInputError
from natgrad.fits._center import Center, Centering
from natgrad.fits._entries import Entries, checked
from natgrad.fits.completion import LowRankModel, fit_product

_SMALLEST = 1e-7  # singular values below this share of the largest are dropped


@dataclass(frozen=True, eq=False)
class AveragedFit:
    """The average of products, each fitted without one fold and stopped by it.

    Attributes:
        model: The average.
        index: Entries that were in a fold, as positions among the entries.
        held_out: Predictions at these entries by the product that did not see them.

    Example:
        >>> positions = (torch.arange(36).view(6, 6) % 5 > 0).nonzero()
        >>> values = ((positions[:, 0] + 1) * (positions[:, 1] - 2.5)).double()
        >>> fit = fit_averaged(Entries((6, 6), positions, values), center="none", hidden=2)
        >>> fit.held_out.shape, fit.model.matrix().shape
        (torch.Size([28]), torch.Size([6, 6]))
    """

    model: LowRankModel
    index: Tensor
    held_out: Tensor


def fit_averaged(
    entries: Entries,
    *,
    center: Centering = "means",
    depth: int = 2,
    scale: float = 1e-3,
    hidden: int = 64,
    seed: int = 0,
    folds: int = 10,
    members: int = 10,
    max_evaluations: int = 3000,
) -> AveragedFit:
    """Fit one product without each fold, stop it where that fold is predicted best, and average.

    No entry is lost to validation: each product misses one fold, and other products see it. The
    predictions at held-out entries are honest, so settings can be compared on them.

    Args:
        entries: Entries to fit, at least two per fold.
        center: What to subtract first.
        depth: Number of factors, at least two.
        scale: Initial scale α.
        hidden: Width between factors.
        seed: Seed of the folds, and of the first product's factors.
        folds: Number of folds.
        members: Number of products, at most one per fold; fewer for large tables.
        max_evaluations: Largest number of gradients of a product.

    Raises:
        InvalidInputError: If an argument cannot be used, or there are too few entries.

    Example:
        >>> positions = (torch.arange(36).view(6, 6) % 5 > 0).nonzero()
        >>> values = ((positions[:, 0] + 1) * (positions[:, 1] - 2.5)).double()
        >>> fit = fit_averaged(Entries((6, 6), positions, values), center="none", hidden=2)
        >>> bool((fit.model.predict(torch.tensor([[0, 0]])) + 2.5).abs() < 0.5)
        True
    """
    entries = checked(entries, "entries")
    folds = min(integer(folds, "folds", low=2), len(entries) // 2)
    members, seed = integer(members, "members", low=1), integer(seed, "seed", low=0)
    if folds < 2:
        raise InvalidInputError(f"{len(entries)} entries are too few to average over folds.")
    order = torch.randperm(len(entries), generator=torch.Generator().manual_seed(seed))
    parts = order.tensor_split(folds)
    models, predicted = [], []
    for k, part in enumerate(parts[:members]):
        rest = torch.cat([*parts[:k], *parts[k + 1 :]])
        fit = fit_product(
            entries.at(rest),
            center=center,
            depth=depth,
            scale=scale,
            hidden=hidden,
            seed=seed + k,
            held_out=entries.at(part),
            max_evaluations=max_evaluations,
        )
        models.append(fit.model)
        predicted.append(fit.model.predict(entries.positions[part]))
    share = [1 / len(models)] * len(models)
    index = torch.cat(parts[:members])
    return AveragedFit(average(models, share, entries), index, torch.cat(predicted))


def average(models: Sequence[LowRankModel], weights: Sequence[float], to: Entries) -> LowRankModel:
    """Return the weighted average, with the row and column means of the entries as its center.

    Rows and columns without an entry are predicted by this center alone.
    """
    center = replace(Center.of(to, "means"), unit=1.0)
    pairs = list(zip(models, weights, strict=True))
    ones = [torch.ones(n, dtype=torch.float64) for n in to.shape]
    # Centers differ by an additive matrix, which has rank two.
    rows = sum((w * (m.center.rows + m.center.mean) for m, w in pairs), -center.rows - center.mean)
    columns = sum((w * m.center.columns for m, w in pairs), -center.columns)
    left = torch.cat(
        [*(w * m.center.unit * m.left.double() for m, w in pairs), rows[:, None], ones[0][:, None]],
        1,
    )
    right = torch.cat([*(m.right.double() for m, _ in pairs), ones[1][None], columns[None]])
    left[torch.bincount(to.positions[:, 0], minlength=to.shape[0]) == 0] = 0
    right[:, torch.bincount(to.positions[:, 1], minlength=to.shape[1]) == 0] = 0
    return LowRankModel(center, *_compressed(left, right))


def _compressed(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Return U diag(s) and Vᵀ of left · right, float32."""
    q, a = torch.linalg.qr(left)
    p, b = torch.linalg.qr(right.mT)
    u, s, vh = torch.linalg.svd(a @ b.mT, full_matrices=False)
    kept = s > _SMALLEST * s[0]
    kept[0] = True
    u, s, vh = u[:, kept], s[kept], vh[kept]
    return (q @ u * s).float(), (vh @ p.mT).float()
