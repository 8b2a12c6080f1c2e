"""Seconds that do not depend on a machine's other work: CPU time in units of a matrix product.

This module imports nothing from natgrad, because a peer in another environment loads this file too.
"""

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

NOMINAL = 0.014
"""Seconds of the reference product on the core that defines a second (88 GFLOP/s)."""

_SHAPE = (1000, 784, 784)
_EVERY = 0.4  # CPU seconds between two measurements of the product


class Clock:
    """Counts the CPU seconds of code inside `running`, at the speed of a reference core.

    On a shared machine the same work takes more or fewer CPU seconds from one minute to the next.
    A float32 product of 1000×784 by 784×784 is timed every 0.4 s, outside the count, and the CPU
    seconds that follow are multiplied by `NOMINAL` over its time.

    Attributes:
        seconds: The count so far.
        products: Every time measured for the product, in CPU seconds.

    Example:
        >>> clock = Clock()
        >>> with clock.running():
        ...     _ = sum(range(1000))
        >>> 0 < clock.seconds < 1, len(clock.products)
        (True, 1)
    """

    def __init__(self) -> None:
        m, k, n = _SHAPE
        source = np.random.default_rng(0)
        self._left = source.standard_normal((m, k), dtype=np.float32)
        self._right = source.standard_normal((k, n), dtype=np.float32)
        self._out = np.empty((m, n), dtype=np.float32)
        self._multiply()  # the first product of a process also loads the library
        self.seconds, self._since = 0.0, 0.0
        self.products: list[float] = []
        self._measure()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count what runs in the block."""
        if self._since >= _EVERY:
            self._measure()
        begin = time.process_time()
        yield
        spent = time.process_time() - begin
        self._since += spent
        self.seconds += spent * NOMINAL / self.products[-1]

    @property
    def product(self) -> float:
        """Return the median time of the product, in CPU seconds."""
        return statistics.median(self.products)

    def _measure(self) -> None:
        self.products.append(min(self._multiply(), self._multiply()))
        self._since = 0.0

    def _multiply(self) -> float:
        begin = time.process_time()
        np.matmul(self._left, self._right, out=self._out)
        return time.process_time() - begin
