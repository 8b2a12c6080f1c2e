// Natural gradient flow of logistic regression from zero, at any time, without integration.
//
// For the logistic loss the Fisher is the Hessian, so the flow is Newton's and the gradient only
// shrinks: sum of rows·σ(-margin) = e^-t c, c half the sum of the rows. At each time this is the
// minimum of a convex function. No depth appears: natural gradient flow does not depend on it.
"use strict";
(function (ng) {
  const LATE = 30; // beyond this time what is finite has settled, to e^-30

  function solve(h00, h01, h11, g0, g1, rank) {
    if (rank < 2) return [g0 / (h00 + h11), g1 / (h00 + h11)];
    const det = h00 * h11 - h01 * h01;
    return [(h11 * g0 - h01 * g1) / det, (h00 * g1 - h01 * g0) / det];
  }

  // Newton's method for sum of weights·row = target. A weight grows like e^-margin, so a step may
  // lower margins only until their weights are a little above the largest one.
  function newton(rows, z, target, weigh, rank) {
    const weights = new Float64Array(rows.length);
    let before = Infinity;
    for (let k = 0; k < 300; k++) {
      let [g0, g1, h00, h01, h11, most] = [-target[0], -target[1], 0, 0, 0, 0];
      for (let i = 0; i < rows.length; i++) {
        const [x, y] = rows[i];
        const [weight, curvature] = weigh(x, y, z);
        weights[i] = weight;
        if (weight > most) most = weight;
        g0 += weight * x;
        g1 += weight * y;
        h00 += curvature * x * x;
        h01 += curvature * x * y;
        h11 += curvature * y * y;
      }
      const step = solve(h00, h01, h11, g0, g1, rank);
      let [length, moved] = [1, 0];
      for (let i = 0; i < rows.length; i++) {
        const change = rows[i][0] * step[0] + rows[i][1] * step[1];
        moved = Math.max(moved, Math.abs(change) * (weights[i] / most));
        if (change < -1) length = Math.min(length, (1 + Math.log(most / weights[i])) / -change);
      }
      if (!Number.isFinite(moved) || (moved < 1e-6 && moved >= before / 2)) return z; // rounding
      z = [z[0] + length * step[0], z[1] + length * step[1]];
      before = moved;
    }
    return z;
  }

  const half = (rows) => rows.reduce((c, r) => [c[0] + r[0] / 2, c[1] + r[1] / 2], [0, 0]);

  // Separable rows, in the coordinates of the two rows that will decide: margins there are t + z.
  // A margin grows like t, but what is solved for stays finite, even at t = 1e12.
  function towardsVertex(rows, times, basis, rank) {
    const first = rows[basis[0]];
    const size = first[0] ** 2 + first[1] ** 2;
    const second = rank === 2 ? rows[basis[1]] : [-first[1], first[0]];
    const det = first[0] * second[1] - first[1] * second[0];
    const inner = rows.map(([x, y], i) => {
      if (i === basis[0]) return [1, 0];
      if (rank === 2 && i === basis[1]) return [0, 1];
      if (rank < 2) return [(x * first[0] + y * first[1]) / size, 0];
      return [(x * second[1] - y * second[0]) / det, (y * first[0] - x * first[1]) / det];
    });
    const target = half(inner);
    let z = [0, 0];
    return times.map((t) => {
      const decay = Math.exp(-t);
      z = newton(inner, z, target, (x, y, at) => {
        // e^t σ(-u) for the margin u = t (x + y) + x z0 + y z1
        const rest = t * (x + y - 1) + x * at[0] + y * at[1];
        const weight = 1 / (decay + Math.exp(rest));
        return [weight, weight * (1 - decay * weight)];
      }, rank);
      const [p, q] = [t + z[0], rank === 2 ? t + z[1] : 0];
      return [(second[1] * p - first[1] * q) / det, (first[0] * q - second[0] * p) / det];
    });
  }

  // Other rows: minimize sum of log(1 + e^-margin) + e^-t c·beta.
  function towardsOptimum(rows, times, rank) {
    const c = half(rows);
    let z = [0, 0];
    return times.map((t) => {
      const decay = Math.exp(-t);
      return (z = newton(rows, z, [decay * c[0], decay * c[1]], (x, y, at) => {
        const e = Math.exp(-Math.abs(x * at[0] + y * at[1]));
        const weight = x * at[0] + y * at[1] > 0 ? e / (1 + e) : 1 / (1 + e);
        return [weight, e / ((1 + e) * (1 + e))];
      }, rank));
    });
  }

  // beta at the given increasing times, for rows of the given kind (see `separability`), with the
  // vertex of `limits` if they are separable.
  ng.naturalFlow = function (rows, found, vertex, times) {
    if (found.rank === 0) return times.map(() => [0, 0]);
    if (found.kind === "separable") {
      return towardsVertex(rows, times, vertex.rows, found.rank);
    }
    const early = towardsOptimum(rows, times.map((t) => Math.min(t, LATE)), found.rank);
    if (found.kind === "not separable") return early;
    // Quasi-separable: beyond LATE the flow moves along the one direction that is left.
    const [a, b] = found.direction;
    const speed = 1 / Math.min(...rows.map(([x, y]) => a * x + b * y).filter((m) => m > 1e-9));
    return early.map(([x, y], i) => {
      const more = Math.max(0, times[i] - LATE) * speed;
      return [x + more * a, y + more * b];
    });
  };
})((globalThis.natgrad ??= {}));
