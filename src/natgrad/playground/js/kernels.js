// What moves when one entry of a matrix is pulled: beta = W1 W2 ... WL with balanced factors.
//
// With beta = U diag(s) V' and balanced factors, gradient flow answers a pull G by
//     K[G] = U (k * (U'GV)) V',   k_ab = sum over i = 1..L of s_a^(2(i-1)/L) s_b^(2(L-i)/L).
// Natural gradient flow over all entries moves G alone, at every depth. Over the observed entries it
// takes the smallest move of the factors that changes the observed entries exactly as pulled.
"use strict";
(function (ng) {
  const product = (A, B) => A.map((row) => B[0].map((_, j) => row.reduce((s, a, k) => s + a * B[k][j], 0)));
  const transpose = (A) => A[0].map((_, j) => A.map((row) => row[j]));
  const zeros = (n) => Array.from({ length: n }, () => new Array(n).fill(0));

  ng.compose = (U, s, V) => product(U.map((row) => row.map((u, k) => u * s[k])), transpose(V));

  ng.kernel = function (U, s, V, depth) {
    const k = s.map((a) =>
      s.map((b) => {
        let sum = 0;
        for (let i = 1; i <= depth; i++) {
          sum += a ** ((2 * (i - 1)) / depth) * b ** ((2 * (depth - i)) / depth);
        }
        return sum;
      })
    );
    const [Ut, Vt] = [transpose(U), transpose(V)];
    return (G) => {
      const inner = product(product(Ut, G), V);
      return product(product(U, inner.map((row, a) => row.map((x, b) => x * k[a][b]))), Vt);
    };
  };

  // Solve a symmetric positive definite system by Cholesky's method.
  ng.solvePositive = function (A, b) {
    const n = b.length;
    const L = zeros(n);
    const x = b.slice();
    for (let i = 0; i < n; i++) {
      for (let j = 0; j <= i; j++) {
        let sum = A[i][j];
        for (let k = 0; k < j; k++) sum -= L[i][k] * L[j][k];
        L[i][j] = i === j ? Math.sqrt(sum) : sum / L[j][j];
      }
    }
    for (let i = 0; i < n; i++) {
      for (let k = 0; k < i; k++) x[i] -= L[i][k] * x[k];
      x[i] /= L[i][i];
    }
    for (let i = n - 1; i >= 0; i--) {
      for (let k = i + 1; k < n; k++) x[i] -= L[k][i] * x[k];
      x[i] /= L[i][i];
    }
    return x;
  };

  // The answers to pulling `entry` by one: gradient flow at each depth, natural gradient flow over
  // all entries, and over the observed ones at each depth. The pulled entry counts as observed.
  ng.responses = function ({ U, s, V, depths, observed, entry: [row, column] }) {
    const n = s.length;
    const pull = zeros(n);
    pull[row][column] = 1;
    const seen = [];
    for (let i = 0; i < n; i++) {
      for (let j = 0; j < n; j++) {
        if (observed[i][j] || (i === row && j === column)) seen.push([i, j]);
      }
    }
    const unit = (i, j) => {
      const E = zeros(n);
      E[i][j] = 1;
      return E;
    };
    const observedMove = (kernel) => {
      const moves = seen.map(([i, j]) => kernel(unit(i, j)));
      const gram = moves.map((move) => seen.map(([i, j]) => move[i][j]));
      const weights = ng.solvePositive(
        gram,
        seen.map(([i, j]) => pull[i][j])
      );
      const sum = zeros(n);
      moves.forEach((move, m) => {
        for (let i = 0; i < n; i++) for (let j = 0; j < n; j++) sum[i][j] += weights[m] * move[i][j];
      });
      return sum;
    };
    const kernels = depths.map((depth) => ng.kernel(U, s, V, depth));
    return {
      gradient: kernels.map((kernel) => kernel(pull)),
      all: pull,
      observed: kernels.map(observedMove),
    };
  };
})((globalThis.natgrad ??= {}));
