// Gradient flow of the logistic loss for beta = w1 * ... * wL, entry by entry.
//
// The first factor v starts at zero and the others at `scale`. Along the flow w_l² - v² keeps its
// value scale², so one number per coordinate is enough:
//     dv/dt = q(v) g,   q = (v² + scale²)^((L-1)/2),   beta = v q,   g = mean of rows·σ(-margin).
// Time runs in s = log(1 + t), where 1e12 is near. Steps are linearly implicit Euler steps,
// extrapolated (Deuflhard 1985; Hairer and Wanner, Solving ODEs II, IV.9).
"use strict";
(function (ng) {
  const COLUMNS = 10; // of the extrapolation: steps divided by 1, 2, ..., 10
  const RTOL = 1e-10; // of one step
  const MOST = 5000; // steps
  const LONGEST = 1; // step in s: a cubic draws the path between two steps
  const NEGLIGIBLE = 38; // e^-38 is below rounding

  function model(rows, depth, scale) {
    const n = rows.length;
    const [xs, ys] = [0, 1].map((k) => Float64Array.from(rows, (r) => r[k]));
    const delta = depth === 1 ? 0 : scale * scale;
    const power = (depth - 1) / 2;
    const q = (v) => (depth === 1 ? 1 : (v * v + delta) ** power);
    const dq = (v) => (depth === 1 ? 0 : 2 * power * v * (v * v + delta) ** (power - 1));
    const margins = new Float64Array(n);

    // dv/dt, which does not depend on time. A row whose margin is NEGLIGIBLE above the least one
    // adds less than rounding.
    function rate(v0, v1, out) {
      const [q0, q1] = [q(v0), q(v1)];
      const [b0, b1] = [v0 * q0, v1 * q1];
      let least = Infinity;
      for (let i = 0; i < n; i++) {
        margins[i] = xs[i] * b0 + ys[i] * b1;
        if (margins[i] < least) least = margins[i];
      }
      const most = Math.max(least, 0) + NEGLIGIBLE;
      let [g0, g1] = [0, 0];
      for (let i = 0; i < n; i++) {
        if (margins[i] > most) continue;
        const sigma = 1 / (1 + Math.exp(margins[i]));
        g0 += sigma * xs[i];
        g1 += sigma * ys[i];
      }
      out[0] = (q0 * g0) / n;
      out[1] = (q1 * g1) / n;
    }

    // The derivative of the rate in v: [[a, b], [c, d]]
    function jacobian(v) {
      const [q0, q1, d0, d1] = [q(v[0]), q(v[1]), dq(v[0]), dq(v[1])];
      const [b0, b1] = [v[0] * q0, v[1] * q1];
      let [g0, g1, h00, h01, h11] = [0, 0, 0, 0, 0];
      for (let i = 0; i < n; i++) {
        const e = Math.exp(-Math.abs(xs[i] * b0 + ys[i] * b1));
        const sigma = xs[i] * b0 + ys[i] * b1 > 0 ? e / (1 + e) : 1 / (1 + e);
        const weight = e / ((1 + e) * (1 + e));
        g0 += sigma * xs[i];
        g1 += sigma * ys[i];
        h00 += weight * xs[i] * xs[i];
        h01 += weight * xs[i] * ys[i];
        h11 += weight * ys[i] * ys[i];
      }
      const [s0, s1] = [q0 + v[0] * d0, q1 + v[1] * d1]; // dbeta/dv
      return [
        (d0 * g0 - q0 * h00 * s0) / n,
        (-q0 * h01 * s1) / n,
        (-q1 * h01 * s0) / n,
        (d1 * g1 - q1 * h11 * s1) / n,
      ];
    }
    return { q, rate, jacobian };
  }

  // One extrapolated step of length h in s; returns the error over what is allowed. `start` is the
  // rate at v, with which every column begins; ds = dt / (1 + t), and 1 + t = e^s.
  function attempt(problem, v, s, h, table, start, f) {
    const J = problem.jacobian(v);
    const e = Math.exp(s);
    for (let j = 0; j < COLUMNS; j++) {
      const m = j + 1;
      const k = h / m;
      const [a, b, c, d] = [1 - k * e * J[0], -k * e * J[1], -k * e * J[2], 1 - k * e * J[3]];
      const det = a * d - b * c;
      let [y0, y1] = v;
      for (let i = 1; i <= m; i++) {
        if (i > 1) problem.rate(y0, y1, f);
        const [r0, r1] = i > 1 ? f : start;
        const length = (k * Math.exp(s + i * k)) / det;
        y0 += length * (d * r0 - b * r1);
        y1 += length * (a * r1 - c * r0);
      }
      table[j][0] = y0;
      table[j][1] = y1;
      for (let l = j - 1; l >= 0; l--) {
        const ratio = m / (l + 1) - 1;
        table[l][0] = table[l + 1][0] + (table[l + 1][0] - table[l][0]) / ratio;
        table[l][1] = table[l + 1][1] + (table[l + 1][1] - table[l][1]) / ratio;
      }
    }
    // table[0] holds the value of all columns, table[1] that without the first.
    const size = Math.max(Math.abs(v[0]), Math.abs(v[1]), Math.abs(table[0][0]), Math.abs(table[0][1]));
    const off = Math.max(Math.abs(table[0][0] - table[1][0]), Math.abs(table[0][1] - table[1][1]));
    return off / (RTOL * size || 1e-300);
  }

  // beta at the given increasing times, and the path of all steps for drawing.
  // Returns { betas, path: { s, beta } }, s = log(1 + t).
  ng.gradientFlow = function (rows, depth, scale, times) {
    const problem = model(rows, depth, scale);
    const table = Array.from({ length: COLUMNS }, () => [0, 0]);
    const [start, f] = [[0, 0], [0, 0]];
    const beta = (v) => [v[0] * problem.q(v[0]), v[1] * problem.q(v[1])];
    const path = { s: [0], v: [[0, 0]], slope: [] };
    let v = [0, 0];
    let [s, h, steps] = [0, 0.1, 0];
    problem.rate(0, 0, start);
    const arrive = () => path.slope.push(start.map((r) => r * Math.exp(s)));
    arrive();
    const betas = times.map((time) => {
      const end = Math.log1p(time);
      while (s < end && steps++ < MOST) {
        const last = s + h >= end * (1 - 1e-14);
        const step = last ? end - s : h;
        const error = attempt(problem, v, s, step, table, start, f);
        const factor = Math.min(4, Math.max(0.2, 0.9 * Math.max(error, 1e-9) ** (-1 / COLUMNS)));
        // A step cut short by a time that was asked for says little about the next one.
        if (!last || error > 1) h = Math.min(LONGEST, step * (Number.isNaN(factor) ? 0.2 : factor));
        if (!(error <= 1)) continue;
        v = [table[0][0], table[0][1]];
        s = last ? end : s + step;
        path.s.push(s);
        path.v.push(v);
        problem.rate(v[0], v[1], start);
        arrive();
      }
      return beta(v);
    });
    return { betas, steps, path, beta };
  };

  // A slope that keeps a cubic within its ends (Fritsch and Carlson 1980). At a finite optimum the
  // slope is rounding times t.
  const gentle = (slope, secant) =>
    slope * secant <= 0 ? 0 : Math.sign(secant) * Math.min(Math.abs(slope), 3 * Math.abs(secant));

  // The path at any s by a cubic through both ends of its step: for curves, not for numbers.
  ng.between = function ({ path, beta }, s) {
    let i = 1;
    while (i < path.s.length - 1 && path.s[i] < s) i++;
    const h = path.s[i] - path.s[i - 1];
    const x = Math.min(1, Math.max(0, (s - path.s[i - 1]) / h));
    const [a, b] = [path.v[i - 1], path.v[i]];
    const [f, g] = [path.slope[i - 1], path.slope[i]];
    const at = (k) => {
      const rise = b[k] - a[k];
      const [first, last] = [gentle(h * f[k], rise), gentle(h * g[k], rise)];
      return a[k] + x * x * (3 - 2 * x) * rise + x * (1 - x) * ((1 - x) * first - x * last);
    };
    return beta([at(0), at(1)]);
  };
})((globalThis.natgrad ??= {}));
