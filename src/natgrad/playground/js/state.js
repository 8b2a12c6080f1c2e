// What the page shows, as one object, and as the part of its address after #.
"use strict";
(function (ng) {
  ng.LINES = ["1", "2", "3", "4", "n"]; // EGD at depth 1 to 4, NGD
  ng.LIMITS = ["a", "b", "c", "d", "v"]; // where each of them tends
  ng.MOST_POINTS = 60;
  const NEAREST = 0.02; // to the origin: a point there has no side

  ng.signed = (points) => points.map(({ x, y, label }) => [label * x, label * y]);

  // A point that fits the view and stays off the origin.
  ng.placed = function (point, view) {
    const clamp = (v) => Math.max(-view, Math.min(view, v));
    let [x, y] = [clamp(point.x), clamp(point.y)];
    const size = Math.hypot(x, y);
    if (!(size >= NEAREST)) [x, y] = size > 0 ? [(x * NEAREST) / size, (y * NEAREST) / size] : [NEAREST, 0];
    return { x, y, label: point.label < 0 ? -1 : 1 };
  };

  const short = (v) => String(Number(v.toFixed(3)));

  ng.encode = function (state) {
    const points = state.points.map((p) => `${p.label > 0 ? "p" : "m"}${short(p.x)},${short(p.y)}`);
    const m = state.matrix;
    const parts = {
      tab: state.tab,
      points: points.join(";"),
      view: short(state.view),
      t: short(state.time),
      scale: short(state.scale),
      on: [...state.shown].sort().join(""),
      ...(state.story ? { story: state.story } : {}),
      matrix: [m.kind, m.rank, short(m.rest), m.entry.join("."), m.observed.flat().map(Number).join("")].join("~"),
    };
    return Object.entries(parts)
      .map(([key, value]) => `${key}=${value}`)
      .join("&");
  };

  const within = (text, low, high, otherwise) => {
    const value = Number.parseFloat(text);
    return Number.isFinite(value) ? Math.max(low, Math.min(high, value)) : otherwise;
  };

  function decodeMatrix(text, matrix) {
    const [kind, rank, rest, entry, observed] = (text ?? "").split("~");
    if (!observed || !/^[01]{36}$/.test(observed)) return matrix;
    const [row, column] = entry.split(".");
    return {
      kind: kind === "random" ? "random" : "groups",
      rank: Math.round(within(rank, 1, 6, matrix.rank)),
      rest: within(rest, -3, 0, matrix.rest),
      entry: [Math.round(within(row, 0, 5, 0)), Math.round(within(column, 0, 5, 0))],
      observed: Array.from({ length: 6 }, (_, i) => [...observed.slice(6 * i, 6 * i + 6)].map((c) => c === "1")),
    };
  }

  const readable = (text) => {
    try {
      return decodeURIComponent(text);
    } catch {
      return text; // a damaged address
    }
  };

  // The state of an address, or of `state` where the address says nothing that can be used.
  ng.decode = function (hash, state) {
    const parts = Object.fromEntries(
      hash
        .replace(/^#/, "")
        .split("&")
        .map((part) => [part.slice(0, part.indexOf("=")), readable(part.slice(part.indexOf("=") + 1))])
    );
    const view = within(parts.view, 1, 20, state.view);
    const points = (parts.points ?? "")
      .split(";")
      .map((text) => /^([pm])(-?[\d.]+),(-?[\d.]+)$/.exec(text))
      .filter(Boolean)
      .slice(0, ng.MOST_POINTS)
      .map(([, label, x, y]) => ng.placed({ x: Number(x), y: Number(y), label: label === "p" ? 1 : -1 }, view));
    const given = points.length > 0 || parts.points === ""; // no points at all can be shared, too
    const every = new Set([...ng.LINES, ...ng.LIMITS]);
    return {
      ...state,
      tab: parts.tab === "matrix" ? "matrix" : "plane",
      points: given ? points : state.points,
      view,
      time: within(parts.t, -1, 12, state.time),
      scale: within(parts.scale, -3, 0, state.scale),
      shown: parts.on === undefined ? state.shown : new Set([...parts.on].filter((c) => every.has(c))),
      story: given ? (parts.story ?? null) : state.story,
      matrix: decodeMatrix(parts.matrix, state.matrix),
    };
  };
})((globalThis.natgrad ??= {}));
