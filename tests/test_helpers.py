"""Loops over cases run them all, and name those that fail."""

import pytest

from tests.helpers import for_each


def test_a_loop_runs_every_case_and_names_those_that_fail():
    seen = []

    def check(case: int) -> None:
        seen.append(case)
        if case == 2:
            with pytest.raises(ZeroDivisionError):
                pass
        assert case != 3, "three is bad\nfor many reasons"

    with pytest.raises(AssertionError) as caught:
        for_each([1, 2, 3, 4], check)
    assert seen == [1, 2, 3, 4]
    first, *lines = str(caught.value).splitlines()
    assert first == "2 of 4 cases failed:"
    assert [line.split(":")[0].strip() for line in lines] == ["2", "3"]
    assert "DID NOT RAISE" in lines[0]
    assert "three is bad" in lines[1]
    assert "DID NOT RAISE" in str(caught.value.__cause__)


def test_a_loop_over_nothing_fails():
    with pytest.raises(AssertionError, match="no cases"):
        for_each([], print)
