// The plane: points that can be dragged, and one line per method.
"use strict";
(function (ng) {
  const SIZE = 520;
  const RIM = 240; // where badges sit
  const APART = 0.105; // radians between badges

  ng.Field = class {
    // `on` has: move(i, x, y), drop(), add(x, y), select(i), key(event)
    constructor(root, on) {
      Object.assign(this, { root, on, view: 5, points: [], dragged: null });
      this.back = ng.svg(root, "g", { class: "back", "aria-hidden": "true" });
      this.lines = {};
      const lines = ng.svg(root, "g", { "aria-hidden": "true" });
      for (const key of [...ng.LIMITS, ...ng.LINES]) {
        this.lines[key] = ng.svg(lines, "line", { class: `line line-${key}` });
      }
      this.rings = [0, 1].map(() => ng.svg(root, "circle", { class: "ring", r: 13, "aria-hidden": "true" }));
      this.dots = ng.svg(root, "g", { class: "dots" });
      this.badges = {};
      const badges = ng.svg(root, "g", { "aria-hidden": "true", class: "badges" });
      for (const key of ng.LINES) {
        const badge = ng.svg(badges, "g", { class: `badge badge-${key}` });
        ng.svg(badge, "circle", { r: 11 });
        ng.svg(badge, "text", { dy: "0.36em" }, ng.BADGES[key]);
        this.badges[key] = badge;
      }
      this.listen();
    }

    px(x, y) {
      const k = SIZE / 2 / this.view;
      return [SIZE / 2 + k * x, SIZE / 2 - k * y];
    }

    place(event) {
      const box = this.root.getBoundingClientRect();
      const k = (2 * this.view) / box.width;
      return [(event.clientX - box.left) * k - this.view, this.view - (event.clientY - box.top) * k];
    }

    listen() {
      const { root, on } = this;
      const which = (event) => {
        const dot = event.target.closest?.(".dot");
        return dot ? Number(dot.dataset.index) : null;
      };
      root.addEventListener("pointerdown", (event) => {
        if (event.button) return;
        this.down = { x: event.clientX, y: event.clientY };
        this.dragged = which(event);
        if (this.dragged === null) return;
        event.preventDefault();
        root.setPointerCapture(event.pointerId);
        on.select(this.dragged);
      });
      // A finger on a point drags it and elsewhere scrolls the page. Browsers heed touch-action only
      // on the picture as a whole.
      const hold = (event) => which(event) !== null && event.preventDefault();
      root.addEventListener("touchstart", hold, { passive: false });
      root.addEventListener("pointermove", (event) => {
        if (this.dragged !== null) on.move(this.dragged, ...this.place(event));
      });
      const end = (event) => {
        const still = this.down && Math.hypot(event.clientX - this.down.x, event.clientY - this.down.y) < 6;
        if (event.type === "pointerup" && this.dragged === null && still) on.add(...this.place(event));
        const dropped = this.dragged !== null;
        this.dragged = this.down = null;
        if (dropped) on.drop();
      };
      root.addEventListener("pointerup", end);
      root.addEventListener("pointercancel", end);
      root.addEventListener("keydown", (event) => on.key(event));
      root.addEventListener("focusin", (event) => {
        const index = which(event);
        if (index !== null && this.dragged === null) on.select(index);
      });
    }

    grid() {
      this.back.replaceChildren();
      ng.svg(this.back, "rect", { width: SIZE, height: SIZE, class: "paper" });
      const step = this.view > 6 ? 2 : 1;
      for (let k = -Math.floor(this.view / step) * step; k <= this.view; k += step) {
        const [x, y] = this.px(k, k);
        const kind = k === 0 ? "axis" : "rule";
        ng.svg(this.back, "line", { x1: x, x2: x, y1: 0, y2: SIZE, class: kind });
        ng.svg(this.back, "line", { x1: 0, x2: SIZE, y1: y, y2: y, class: kind });
      }
    }

    dot(i) {
      const dot = ng.svg(this.dots, "g", { class: "dot", role: "button", "data-index": i });
      ng.svg(dot, "circle", { class: "reach", r: 20 });
      ng.svg(dot, "circle", { class: "plus", r: 7 });
      ng.svg(dot, "rect", { class: "minus", x: -6.5, y: -6.5, width: 13, height: 13 });
      return dot;
    }

    drawPoints(points, selected) {
      while (this.dots.children.length > points.length) this.dots.lastChild.remove();
      while (this.dots.children.length < points.length) this.dot(this.dots.children.length);
      points.forEach((p, i) => {
        const [x, y] = this.px(p.x, p.y);
        ng.set(this.dots.children[i], {
          transform: `translate(${x.toFixed(2)} ${y.toFixed(2)})`,
          class: `dot ${p.label > 0 ? "is-plus" : "is-minus"}${i === selected ? " is-selected" : ""}`,
          tabindex: i === selected ? 0 : -1,
          "aria-label": `Point ${i + 1} of ${points.length}, class ${p.label > 0 ? "plus" : "minus"}, at ${p.x.toFixed(2)}, ${p.y.toFixed(2)}`,
        });
      });
    }

    // Separators are perpendicular to beta.
    drawLine(line, beta) {
      line.style.display = beta ? "" : "none";
      if (!beta) return null;
      const size = Math.hypot(...beta);
      const [x, y] = [beta[1] / size, beta[0] / size]; // along the line, y downwards
      const far = SIZE;
      const c = SIZE / 2;
      ng.set(line, {
        x1: (c - far * x).toFixed(2), y1: (c - far * y).toFixed(2),
        x2: (c + far * x).toFixed(2), y2: (c + far * y).toFixed(2),
      });
      return Math.atan2(y, x);
    }

    drawBadges(angles) {
      // The end of each line on the upper side; neighbours are pushed apart along the rim.
      const up = Object.entries(angles).map(([key, a]) => [key, a > 0 || a <= -Math.PI ? a - Math.PI : a]);
      up.sort((a, b) => a[1] - b[1]);
      for (let k = 1; k < up.length; k++) up[k][1] = Math.max(up[k][1], up[k - 1][1] + APART);
      const over = up.length ? Math.max(0, up[up.length - 1][1]) / 2 : 0;
      for (const key of ng.LINES) this.badges[key].style.display = key in angles ? "" : "none";
      for (const [key, a] of up) {
        const at = a - over;
        const reach = RIM * Math.min(1 / Math.max(Math.abs(Math.cos(at)), Math.abs(Math.sin(at))), 1.12);
        const [x, y] = [SIZE / 2 + reach * Math.cos(at), SIZE / 2 + reach * Math.sin(at)];
        ng.set(this.badges[key], { transform: `translate(${x.toFixed(2)} ${y.toFixed(2)})` });
      }
    }

    draw({ points, selected, view, betas, support }) {
      if (view !== this.view || !this.back.firstChild) {
        this.view = view;
        this.grid();
      }
      const angles = {};
      for (const key of [...ng.LIMITS, ...ng.LINES]) {
        const angle = this.drawLine(this.lines[key], betas[key]);
        if (angle !== null && ng.BADGES[key]) angles[key] = angle;
      }
      this.drawBadges(angles);
      this.rings.forEach((ring, k) => {
        const point = points[support[k]];
        ring.style.display = point ? "" : "none";
        if (!point) return;
        const [cx, cy] = this.px(point.x, point.y);
        ng.set(ring, { cx: cx.toFixed(2), cy: cy.toFixed(2) });
      });
      this.drawPoints(points, selected);
    }

    focus(i) {
      this.dots.children[i]?.focus({ preventScroll: true });
    }
  };
})((globalThis.natgrad ??= {}));
