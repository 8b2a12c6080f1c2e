// Angles over time: one curve per method, one dashed level per limit, and the time that is shown.
"use strict";
(function (ng) {
  const [LEFT, RIGHT, TOP, BOTTOM] = [44, 488, 12, 216];
  const [FIRST, LAST] = [-1, 12];
  const SHORT = { a: "ℓ2", b: "ℓ1", c: "ℓ⅔", d: "ℓ½", v: "LP" };

  const across = (power) => LEFT + ((RIGHT - LEFT) * (power - FIRST)) / (LAST - FIRST);

  // A step of 1, 2 or 5 times a power of ten that gives about five ticks.
  function spacing(span) {
    const raw = span / 5;
    const power = 10 ** Math.floor(Math.log10(raw));
    return [1, 2, 5, 10].map((k) => k * power).find((step) => step >= raw);
  }

  ng.Chart = class {
    constructor(root) {
      this.root = root;
      this.back = ng.svg(root, "g");
      this.cursor = ng.svg(root, "line", { class: "cursor", y1: TOP, y2: BOTTOM });
      this.series = {};
      this.labels = {};
      for (const key of ng.LIMITS) {
        this.series[key] = ng.svg(root, "line", { class: `line line-${key}`, x1: LEFT, x2: RIGHT });
        this.labels[key] = ng.svg(root, "text", { class: "level", x: RIGHT + 8 }, SHORT[key]);
      }
      this.now = {};
      for (const key of ng.LINES) {
        this.series[key] = ng.svg(root, "path", { class: `line line-${key}` });
        this.now[key] = ng.svg(root, "circle", { class: `now badge-${key}`, r: 4.5 });
      }
      for (let k = 0; k <= LAST; k += 3) {
        ng.svg(root, "text", { class: "tick", x: across(k), y: BOTTOM + 18, "text-anchor": "middle" }, k ? `10${"⁰¹²³⁴⁵⁶⁷⁸⁹"[k] ?? "¹²"}` : "t = 1");
      }
    }

    range(curves, levels) {
      const values = [...Object.values(curves).flatMap((c) => c.map(([, a]) => a)), ...Object.values(levels)];
      let [low, high] = [Math.min(...values), Math.max(...values)];
      if (!values.length) [low, high] = [0, 10];
      const pad = Math.max(0.08 * (high - low), (12 - (high - low)) / 2, 0);
      return [low - pad, high + pad];
    }

    ticks(low, high, y) {
      const step = spacing(high - low);
      const marks = [];
      for (let k = Math.ceil(low / step); k * step <= high; k++) marks.push(k * step);
      while (this.back.children.length > 2 * marks.length) this.back.lastChild.remove();
      while (this.back.children.length < 2 * marks.length) {
        ng.svg(this.back, "line", { class: "rule", x1: LEFT, x2: RIGHT });
        ng.svg(this.back, "text", { class: "tick", x: LEFT - 6, "text-anchor": "end", dy: "0.35em" });
      }
      marks.forEach((mark, k) => {
        const at = y(mark).toFixed(1);
        ng.set(this.back.children[2 * k], { y1: at, y2: at });
        ng.set(this.back.children[2 * k + 1], { y: at });
        ng.say(this.back.children[2 * k + 1], `${ng.fixed(mark, 0)}°`);
      });
    }

    // curves: key to [[power of ten, degrees]], levels: key to degrees, now: key to degrees.
    draw({ time, curves, levels, now }) {
      const [low, high] = this.range(curves, levels);
      const y = (degrees) => BOTTOM - ((BOTTOM - TOP) * (degrees - low)) / (high - low);
      this.ticks(low, high, y);
      for (const key of ng.LINES) {
        const shown = key in curves;
        this.series[key].style.display = this.now[key].style.display = shown ? "" : "none";
        if (!shown) continue;
        const path = curves[key].map(([t, a], i) => `${i ? "L" : "M"}${across(t).toFixed(1)} ${y(a).toFixed(1)}`);
        ng.set(this.series[key], { d: path.join("") });
        ng.set(this.now[key], { cx: across(time).toFixed(1), cy: y(now[key]).toFixed(1) });
      }
      this.levels(levels, y);
      ng.set(this.cursor, { x1: across(time).toFixed(1), x2: across(time).toFixed(1) });
    }

    levels(levels, y) {
      const labels = Object.entries(levels).sort((a, b) => b[1] - a[1]);
      let last = -Infinity;
      for (const key of ng.LIMITS) {
        const shown = key in levels;
        this.series[key].style.display = this.labels[key].style.display = shown ? "" : "none";
      }
      for (const [key, degrees] of labels) {
        const at = y(degrees);
        last = Math.max(at, last + 13); // labels do not overlap
        ng.set(this.series[key], { y1: at.toFixed(1), y2: at.toFixed(1) });
        ng.set(this.labels[key], { y: (last + 4).toFixed(1) });
      }
    }
  };
})((globalThis.natgrad ??= {}));
