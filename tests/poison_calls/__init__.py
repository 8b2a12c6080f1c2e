"""A valid call of every public callable, small enough to be made thousands of times."""

from tests.poison_calls import models, optimizers, runs, tables
from tests.poison_calls.common import TABLE
from tests.poison_calls.models import LIKELIHOODS, MODELS

__all__ = [
    "DOCUMENTED",
    "RECORDS",
    "REFUSES",
    "TABLE",
    "hands_on",
    "models",
    "optimizers",
    "runs",
    "tables",
]

# What natgrad makes and hands out. They hold what they are given, so their constructors have
# nothing to refuse; their methods are in the table.
RECORDS = {
    "natgrad.Trajectory",
    "natgrad.data.completion.Completion",
    "natgrad.data.mnist.Mnist",
    "natgrad.data.separable.Separable",
    "natgrad.data.tables.Labeled",
    "natgrad.data.tables.Step",
    "natgrad.data.tables.Table",
    "natgrad.data.teachers.Regression",
    "natgrad.data.triples.Table",
    "natgrad.data.triples.Triples",
    "natgrad.diagnostics.Rate",
    "natgrad.diagnostics.Stationarity",
    "natgrad.diagnostics.SupportRecovery",
    "natgrad.likelihoods.Root",
    "natgrad.likelihoods.Whitened",
    "natgrad.limits.Certified",
    "natgrad.limits.Limit",
    "natgrad.limits.Separability",
    "natgrad.linalg.LeastSquares",
    "natgrad.optim.Diagnosis",
    "natgrad.optim.GaussNewtonStatistics",
    "natgrad.optim.StepStatistics",
    "natgrad.parametrizations.Design",
    "natgrad.stopping.Progress",
}

# Calls that no argument makes valid here: a group is refused always, and the files are not there.
REFUSES = {
    "natgrad.Bernoulli.precision_root",  # no constant Fisher
    "natgrad.Categorical.precision_root",
    "natgrad.likelihoods.Poisson.precision_root",
    "natgrad.DeepLinear.natural_lift",  # not read at entries
    "natgrad.Diagonal.natural_lift",
    "natgrad.GaussNewton.add_param_group",
    "natgrad.NGD.add_param_group",
    "natgrad.data.mnist.load",
}


# Where NaN is the documented answer: places in the result, by poison.
_SCALAR = {"zeros": {""}}
DOCUMENTED = {
    "natgrad.diagnostics.angle": _SCALAR,
    "natgrad.diagnostics.cosine": _SCALAR,
    "natgrad.diagnostics.distance_to_limits": {"zeros": {".one"}},
    "natgrad.diagnostics.effective_rank": _SCALAR,
    "natgrad.diagnostics.gaussian_accuracy": _SCALAR,
    "natgrad.diagnostics.margin": _SCALAR,
    "natgrad.diagnostics.margin_fractions": {"zeros": {".2"}},
    "natgrad.diagnostics.norm_margin": _SCALAR,
    "natgrad.diagnostics.normalized_margins": _SCALAR,
    "natgrad.integrate": {"huge": {".error_estimate"}, "tiny": {".error_estimate"}},
}


def hands_on(name: str) -> bool:
    """Return whether a callable is a map between tensors: NaN in is NaN out, as in PyTorch.

    These run inside of flows and transforms, which check entries at their own border.
    """
    owner, _, last = name.rpartition(".")
    kind = owner.rpartition(".")[2]
    likelihoods = {name.rpartition(".")[2] for name in LIKELIHOODS}
    maps = {*likelihoods, *MODELS, "Root", "Whitened", "Completion"}
    return kind in maps or last in ("flatten", "unflatten", "widen")
