// Where training must end, in the plane: exact, because a planar polygon has few corners.
//
// Rows are signed inputs y·x. The feasible separators b have row·b >= 1 for every row.
"use strict";
(function (ng) {
  const EDGE = 1e-12; // an angle this far from a straight one is rounding

  // The widest angle between neighbours, and where it ends.
  function widestGap(rows) {
    const angles = rows.map(([x, y]) => Math.atan2(y, x)).sort((a, b) => a - b);
    let gap = angles[0] + 2 * Math.PI - angles[angles.length - 1];
    let after = angles[0];
    for (let i = 1; i < angles.length; i++) {
      if (angles[i] - angles[i - 1] > gap) {
        gap = angles[i] - angles[i - 1];
        after = angles[i];
      }
    }
    return { gap, after };
  }

  // The kind of the data, as natgrad.limits.separability names it. No row may be zero.
  ng.separability = function (rows) {
    if (!rows.length) return { kind: "not separable", rank: 0 };
    const { gap, after } = widestGap(rows);
    const along = [Math.cos(after), Math.sin(after)];
    const across = ([x, y]) => Math.abs(x * along[1] - y * along[0]);
    const rank = rows.some((r) => across(r) > EDGE * Math.hypot(...r)) ? 2 : 1;
    if (gap > Math.PI + EDGE) return { kind: "separable", rank };
    if (gap < Math.PI - EDGE || rank === 1) return { kind: "not separable", rank };
    // Some rows lie on a line through the origin, on both sides of it; the others on one side.
    return { kind: "quasi-separable", rank, direction: [-along[1], along[0]] };
  };

  const feasible = (rows, b) => rows.every(([x, y]) => x * b[0] + y * b[1] >= 1 - 1e-9);

  // Corners of the feasible polygon, each with the two rows that meet there.
  ng.corners = function (rows) {
    const found = [];
    for (let i = 0; i < rows.length; i++) {
      for (let j = 0; j < i; j++) {
        const [[a, b], [c, d]] = [rows[i], rows[j]];
        const det = a * d - b * c;
        if (Math.abs(det) <= EDGE * Math.hypot(a, b) * Math.hypot(c, d)) continue;
        const corner = [(d - b) / det, (a - c) / det];
        if (feasible(rows, corner)) found.push({ b: corner, rows: [i, j] });
      }
    }
    return found;
  };

  // Feasible points on the axes, nearest to the origin.
  function onAxes(rows) {
    const found = [];
    for (const k of [0, 1]) {
      const entries = rows.map((r) => r[k]);
      const least = Math.min(...entries);
      const most = Math.max(...entries);
      if (least <= 0 && most >= 0) continue;
      const b = [0, 0];
      b[k] = least > 0 ? 1 / least : 1 / most;
      found.push({ b, rows: [entries.indexOf(least > 0 ? least : most)] });
    }
    return found;
  }

  // For each row, the shortest b with row·b = 1.
  function alone(rows) {
    const found = [];
    rows.forEach(([x, y], i) => {
      const squared = x * x + y * y;
      const b = [x / squared, y / squared];
      if (feasible(rows, b)) found.push({ b, rows: [i] });
    });
    return found;
  }

  function least(candidates, cost) {
    let best = null;
    let value = Infinity;
    for (const candidate of candidates) {
      const at = cost(candidate.b);
      if (at < value) [best, value] = [candidate, at];
    }
    return best;
  }

  const total = (rows) => rows.reduce((sum, r) => [sum[0] + r[0] / 2, sum[1] + r[1] / 2], [0, 0]);

  // All limits of separable rows: the max margins of the l_{2/L} norms, L = 1 to 4, and the corner
  // to which natural gradient flow from zero tends: least c·b, c half the sum of the rows.
  // For p < 1 the norm is concave between the axes, so the best corner is the global optimum.
  ng.limits = function (rows) {
    const corners = ng.corners(rows);
    const single = alone(rows);
    const every = [...corners, ...onAxes(rows)];
    const norm = (p) => least(every, (b) => Math.abs(b[0]) ** p + Math.abs(b[1]) ** p);
    const c = total(rows);
    return {
      margins: [
        least([...corners, ...single], (b) => Math.hypot(...b)),
        norm(1),
        norm(2 / 3),
        norm(1 / 2),
      ],
      // Rows on one line through the origin have no corner: natural flow stays on that line.
      vertex: least(corners.length ? corners : single, (b) => c[0] * b[0] + c[1] * b[1]),
    };
  };
})((globalThis.natgrad ??= {}));
