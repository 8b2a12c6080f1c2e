"""The atlas of separators: the smoke preset, its claims and its picture."""

import numpy as np
import pytest

from natgrad.experiments.atlas.separators.cells import LIMITS, METHODS, Data, certified
from natgrad.experiments.atlas.separators.config import EXPERIMENT
from natgrad.lab import figures
from natgrad.lab.experiment import in_this_process


@pytest.fixture(scope="module")
def found():
    config = EXPERIMENT.presets["smoke"]
    return config, EXPERIMENT.compute(config, in_this_process)


def test_every_claim_is_as_expected(found) -> None:
    config, arrays = found
    judged = EXPERIMENT.claims(config, arrays)
    assert len({claim.id for claim in judged}) == len(judged)
    for claim in judged:
        assert claim.as_expected("smoke"), (claim.id, claim.value)


def test_no_share_exceeds_one_and_own_certificates_prove_no_more(found) -> None:
    _, arrays = found
    assert arrays["fractions"].max() <= 1 + 1e-9
    assert (arrays["certified"] <= arrays["fractions"][:, :, -1] + 1e-9).all()


def test_limits_of_optimizers_are_those_that_are_computed() -> None:
    named = {method.limit for method in METHODS.values()} - {None}
    assert named == set(LIMITS)
    values = [limit.certificate for limit in certified(Data(30, 20, 4, 5))]
    assert len(values) == len(LIMITS)
    assert max(values) < 1e-8


def test_the_picture_has_both_panels(found) -> None:
    config, arrays = found
    with figures.style():
        drawn = figures.render(EXPERIMENT.draw(config, arrays))
    assert drawn["figure.png"][:4] == b"\x89PNG"
    assert np.isfinite(arrays["path"]).all()
