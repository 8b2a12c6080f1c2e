"""K-FAC and Shampoo of several classes, free of underflow."""

import numpy as np
import numpy.typing as npt

from natgrad.flows._by_length import Vector, Velocity


class Classes:
    """Softmax regression in the direction of its gradient, free of underflow.

    B has shape `(d, k)` and rows that sum to zero. It is written in an orthonormal basis Q of such
    rows: b = vec(BQ).

    Attributes:
        x: Inputs.
        k: Number of classes.
        basis: Q, shape `(k, k − 1)`.
        own: Which class each row of x has, shape `(n, k)`.
        rows: Margins (β_y − β_c)·xₙ as rows times b, shape `(n (k − 1), d (k − 1))`.
    """

    def __init__(self, x: Vector, labels: npt.NDArray[np.int64], classes: int) -> None:
        self.x, self.k = x, classes
        spanning = np.hstack([np.ones((classes, 1)), np.eye(classes)[:, : classes - 1]])
        self.basis = np.linalg.qr(spanning)[0][:, 1:]
        self.own = np.eye(classes, dtype=bool)[labels]
        pairs = self.own[:, None].astype(float) - np.eye(classes)
        rows = np.einsum("nd,ncj->ncdj", x, pairs @ self.basis)
        self.rows: Vector = rows[~self.own].reshape(-1, x.shape[1] * (classes - 1))

    def log_probabilities(self, b: Vector) -> Vector:
        """Return log p, shape `(n, k)`."""
        outputs = self.x @ b.reshape(-1, self.k - 1) @ self.basis.T
        found: Vector = outputs - np.logaddexp.reduce(outputs, axis=1, keepdims=True)
        return found

    def pull(self, logs: Vector) -> tuple[Vector, float]:
        """Return −∇L of the summed loss, shape `(d, k)`, up to a factor; and its logarithm."""
        wrong = np.where(self.own, -np.inf, logs)
        size = float(wrong.max())
        pulled = -np.exp(wrong - size)
        pulled[self.own] = -pulled.sum(1)
        return self.x.T @ pulled, size


class ClassKfac(Classes):
    """The flow Ḃ = (A + λ)⁻¹ (−∇L) (G + μ)⁺ of softmax regression.

    Attributes:
        metric: A + λ.
        class_damping: μ.
    """

    def __init__(
        self, x: Vector, labels: npt.NDArray[np.int64], damping: float, class_damping: float = 0.0
    ) -> None:
        super().__init__(x, labels, int(labels.max()) + 1)
        self.class_damping = class_damping
        self.metric = x.T @ x / len(x) + damping * np.eye(x.shape[1])

    def factor(self, b: Vector) -> Vector:
        """Return G = ⟨diag p − ppᵀ⟩ in the basis, up to a factor."""
        return self._in_basis(self._edges(self.log_probabilities(b))[0])

    def _in_basis(self, edges: Vector) -> Vector:
        laplacian = np.diag(edges.sum(1)) - edges
        found: Vector = self.basis.T @ laplacian @ self.basis
        return found

    def velocity(self) -> Velocity:
        """Return the direction as a function of b."""

        def velocity(b: Vector) -> Vector:
            logs = self.log_probabilities(b)
            gradient, _ = self.pull(logs)
            edges, size = self._edges(logs)
            if self.class_damping > 0:
                factor = np.exp(size) / len(self.x) * self._in_basis(edges)
                damped = factor + self.class_damping * np.eye(self.k - 1)
                solved = np.linalg.solve(damped, (gradient @ self.basis).T).T
            else:
                solved = laplacian_solve(edges, gradient.T).T @ self.basis
            return np.asarray(np.linalg.solve(self.metric, solved).ravel(), dtype=np.float64)

        return velocity

    def _edges(self, logs: Vector) -> tuple[Vector, float]:
        """Return Σₙ p_c p_c′ up to a factor, and its logarithm: G is their Laplacian over n."""
        products = logs[:, :, None] + logs[:, None, :]
        products[:, np.arange(self.k), np.arange(self.k)] = -np.inf
        size = float(products.max())
        return np.exp(products - size).sum(0), size


class SummedShampoo(Classes):
    """The flow Ḃ = L^{−1/4} (−∇L) R^{−1/4}, with L and R the integrals of ∇∇ᵀ and ∇ᵀ∇.

    The state is b, L and R in one vector. Along a path that diverges the gradient falls
    exponentially in its length, so L and R settle, and the flow becomes gradient flow in a norm.

    Attributes:
        eps: L and R are `eps` times the identity at the start.
    """

    eps = 1e-2

    def start(self) -> Vector:
        """Return B = 0 and the first L and R."""
        d, more = self.x.shape[1], self.k - 1
        sums = [self.eps * np.eye(size).ravel() for size in (d, more)]
        return np.concatenate([np.zeros(d * more), *sums])

    def parts(self, state: Vector) -> tuple[Vector, Vector, Vector]:
        """Return b, L and R."""
        d, more = self.x.shape[1], self.k - 1
        b, left, right = np.split(state, [d * more, d * more + d * d])
        return b, left.reshape(d, d), right.reshape(more, more)

    def velocity(self) -> Velocity:
        """Return the direction of the state, up to a factor."""

        def velocity(state: Vector) -> Vector:
            b, left, right = self.parts(state)
            pulled, size = self.pull(self.log_probabilities(b))
            g = pulled @ self.basis / len(self.x)
            moved = _power(left, -0.25) @ g @ _power(right, -0.25)
            sums = np.concatenate([(g @ g.T).ravel(), (g.T @ g).ravel()])
            return np.concatenate([moved.ravel(), np.exp(size) * sums])

        return velocity

    def metric(self, state: Vector) -> Vector:
        """Return the metric tr(Bᵀ L^{1/4} B R^{1/4}) in b."""
        _, left, right = self.parts(state)
        found: Vector = np.asarray(np.kron(_power(left, 0.25), _power(right, 0.25)), np.float64)
        return found


def _power(a: Vector, exponent: float) -> Vector:
    """Return a power of a positive definite matrix."""
    values, vectors = np.linalg.eigh((a + a.T) / 2)
    found: Vector = (vectors * values**exponent) @ vectors.T
    return found


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
