"""K-FAC of several classes by arc length, its two factors free of underflow."""

import numpy as np
import numpy.typing as npt

from natgrad.flows._by_length import Vector, Velocity


class ClassKfac:
    """The flow Ḃ = (A + λ)⁻¹ (−∇L) (G + μ)⁺ of softmax regression.

    B has shape `(d, k)` and rows that sum to zero. It is written in an orthonormal basis Q of such
    rows: b = vec(BQ).

    Attributes:
        metric: A + λ.
        rows: Margins (β_y − β_c)·xₙ as rows times b, shape `(n (k − 1), d (k − 1))`.
    """

    def __init__(
        self, x: Vector, labels: npt.NDArray[np.int64], damping: float, class_damping: float = 0.0
    ) -> None:
        self.x, self.class_damping = x, class_damping
        self.k = k = int(labels.max()) + 1
        self.metric = x.T @ x / len(x) + damping * np.eye(x.shape[1])
        spanning = np.hstack([np.ones((k, 1)), np.eye(k)[:, : k - 1]])
        self.basis = np.linalg.qr(spanning)[0][:, 1:]
        self.own = np.eye(k, dtype=bool)[labels]
        pairs = self.own[:, None].astype(float) - np.eye(k)
        rows = np.einsum("nd,ncj->ncdj", x, pairs @ self.basis)
        self.rows: Vector = rows[~self.own].reshape(-1, x.shape[1] * (k - 1))

    def factor(self, b: Vector) -> Vector:
        """Return G = ⟨diag p − ppᵀ⟩ in the basis, up to a factor."""
        return self._in_basis(self._edges(self._log_probabilities(b))[0])

    def _in_basis(self, edges: Vector) -> Vector:
        laplacian = np.diag(edges.sum(1)) - edges
        found: Vector = self.basis.T @ laplacian @ self.basis
        return found

    def velocity(self) -> Velocity:
        """Return the direction as a function of b."""

        def velocity(b: Vector) -> Vector:
            logs = self._log_probabilities(b)
            wrong = np.where(self.own, -np.inf, logs)
            pulled = -np.exp(wrong - wrong.max())
            pulled[self.own] = -pulled.sum(1)
            edges, size = self._edges(logs)
            gradient = self.x.T @ pulled
            if self.class_damping > 0:
                factor = np.exp(size) / len(self.x) * self._in_basis(edges)
                damped = factor + self.class_damping * np.eye(self.k - 1)
                solved = np.linalg.solve(damped, (gradient @ self.basis).T).T
            else:
                solved = laplacian_solve(edges, gradient.T).T @ self.basis
            return np.asarray(np.linalg.solve(self.metric, solved).ravel(), dtype=np.float64)

        return velocity

    def _log_probabilities(self, b: Vector) -> Vector:
        outputs = self.x @ b.reshape(-1, self.k - 1) @ self.basis.T
        found: Vector = outputs - np.logaddexp.reduce(outputs, axis=1, keepdims=True)
        return found

    def _edges(self, logs: Vector) -> tuple[Vector, float]:
        """Return Σₙ p_c p_c′ up to a factor, and its logarithm: G is their Laplacian over n."""
        products = logs[:, :, None] + logs[:, None, :]
        products[:, np.arange(self.k), np.arange(self.k)] = -np.inf
        size = float(products.max())
        return np.exp(products - size).sum(0), size


def laplacian_solve(edges: Vector, sides: Vector) -> Vector:
    """Return z with L z = sides, L the Laplacian of edge weights, and columns that sum to zero.

    Nodes are eliminated from the weakest on by sums alone (Grassmann, Taksar and Heyman 1985), so
    that weights of very different sizes lose no digits.

    Example:
        >>> laplacian_solve(np.array([[0.0, 2.0], [2.0, 0.0]]), np.array([[1.0], [-1.0]])).tolist()
        [[0.25], [-0.25]]
    """
    edges, sides = edges.copy(), sides.copy()
    left, steps = list(range(len(edges))), []
    while len(left) > 1:
        node = min(left, key=lambda i: float(edges[i, left].sum()))
        left.remove(node)
        weights = edges[node, left]
        total = weights.sum()
        steps.append((node, list(left), weights, total))
        edges[np.ix_(left, left)] += np.outer(weights, weights) / total
        edges[left, left] = 0
        sides[left] += np.outer(weights / total, sides[node])
    z = np.zeros_like(sides)
    for node, others, weights, total in reversed(steps):
        z[node] = (sides[node] + weights @ z[others]) / total
    found: Vector = z - z.mean(0)
    return found
