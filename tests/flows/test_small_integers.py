"""Natural flows of 200 small-integer sets: separable or not, duplicated, symmetric."""

import collections

import pytest

from benchmarks.flow_problems import integers_end
from tests.helpers import for_each

SETS = 200


@pytest.mark.parametrize("sets", [40, pytest.param(SETS, marks=pytest.mark.slow)])
def test_natural_flows_of_small_integers_end_where_they_must(sets) -> None:
    """Logits that separate grow along the linear program; the others end at their optimum."""
    kinds: collections.Counter[str] = collections.Counter()

    def check(seed: int) -> None:
        kind = integers_end(seed)
        assert kind
        kinds[kind] += 1

    for_each(range(sets), check)
    assert all(
        kinds[kind] >= sets / 20 for kind in ("separable", "quasi-separable", "not separable")
    )
