// The page: one state, computed and drawn anew whenever it changes.
"use strict";
(function (ng) {
  if (location.search === "?embedded") {
    document.body.classList.add("embedded"); // in another page, which is told how much room it takes
    const tell = () => parent.postMessage({ playground: Math.ceil(document.body.getBoundingClientRect().height) }, "*");
    new ResizeObserver(tell).observe(document.body);
  }
  const byId = (id) => document.getElementById(id);
  const [FIRST, LAST, SAMPLES] = [-1, 12, 131];
  const POWERS = Array.from({ length: SAMPLES }, (_, k) => FIRST + ((LAST - FIRST) * k) / (SAMPLES - 1));
  const STEP = { ArrowUp: [0, 1], ArrowDown: [0, -1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };

  let state = ng.decode(location.hash, { tab: "plane", matrix: ng.MATRIX, ...ng.startOf("fig2") });
  let waiting = false;

  // The separators now, their curves over time and their limits.
  function compute() {
    const rows = ng.signed(state.points);
    const found = ng.separability(rows);
    const limits = found.kind === "separable" ? ng.limits(rows) : null;
    const [betas, paths] = [{}, {}];
    if (rows.length) {
      const [now, end] = [10 ** state.time, 10 ** LAST];
      for (const depth of [1, 2, 3, 4]) {
        const flow = ng.gradientFlow(rows, depth, 10 ** state.scale, now < end ? [now, end] : [end]);
        betas[depth] = flow.betas[0];
        paths[depth] = POWERS.map((power) => ng.between(flow, Math.log1p(10 ** power)));
      }
      const times = POWERS.map((power) => 10 ** power);
      paths.n = ng.naturalFlow(rows, found, limits?.vertex, times);
      betas.n = ng.naturalFlow(rows, found, limits?.vertex, [now])[0];
    }
    if (limits) {
      limits.margins.forEach((limit, k) => (betas[ng.LIMITS[k]] = limit.b));
      betas.v = limits.vertex.b;
    }
    // Zero weights have no line: the points may cancel each other.
    for (const [k, b] of Object.entries(betas)) if (!(Math.hypot(...b) > 0)) delete betas[k];
    return { ...state, rows, found, limits, betas, paths };
  }

  // Angles in degrees, within half a turn of the data's middle, so that curves do not jump.
  function angles(shown) {
    const sum = shown.rows.reduce((s, r) => [s[0] + r[0], s[1] + r[1]], [0, 0]);
    const middle = Math.atan2(sum[1], sum[0]);
    return ([x, y]) => {
      const turn = Math.atan2(y, x) - middle;
      return ((middle + Math.atan2(Math.sin(turn), Math.cos(turn))) * 180) / Math.PI;
    };
  }

  function drawChart(shown) {
    const angle = angles(shown);
    const pick = (keys, value) =>
      Object.fromEntries(keys.filter((k) => shown.shown.has(k) && shown.betas[k]).map((k) => [k, value(k)]));
    chart.draw({
      time: shown.time,
      curves: pick(ng.LINES, (k) => shown.paths[k].map((b, i) => [POWERS[i], angle(b)])),
      levels: pick(ng.LIMITS, (k) => angle(shown.betas[k])),
      now: pick(ng.LINES, (k) => angle(shown.betas[k])),
    });
    return angle;
  }

  function drawWords(shown, angle) {
    const { title, text, then } = ng.describe(shown);
    const key = `${title}|${text}`;
    if (message.dataset.key !== key && field.dragged === null) { // new words would move the plane
      message.dataset.key = key;
      message.replaceChildren(
        Object.assign(document.createElement("h2"), { textContent: title }),
        Object.assign(document.createElement("p"), { textContent: text })
      );
      if (then) {
        const button = Object.assign(document.createElement("button"), { type: "button", textContent: then.label });
        button.addEventListener("click", () => change(ng.startOf(then.story)));
        message.append(button);
      }
    }
    for (const [k, button] of Object.entries(toggles)) {
      const beta = shown.betas[k];
      ng.set(button, { "aria-pressed": shown.shown.has(k), class: `toggle toggle-${k}${beta ? "" : " is-absent"}` });
      ng.say(button.lastChild, beta ? `${ng.fixed(angle(beta))}°` : "none");
    }
    for (const [name, chip] of Object.entries(chips)) {
      const at = shown.story === "d2" ? "d1" : shown.story;
      ng.set(chip, { "aria-pressed": name === at });
    }
    ng.say(byId("count"), `${shown.points.length} of ${ng.MOST_POINTS} points`);
    byId("flip").disabled = byId("delete").disabled = !shown.points.length;
    ng.say(byId("time-text"), `t = ${ng.power(shown.time)}`);
    ng.say(byId("scale-text"), `α = ${ng.fixed(10 ** shown.scale, 3)}`);
  }

  ng.redraw = function () {
    const matrix = state.tab === "matrix";
    byId("plane").hidden = matrix;
    byId("matrix").hidden = !matrix;
    for (const [id, on] of [["tab-plane", !matrix], ["tab-matrix", matrix]]) {
      ng.set(byId(id), { "aria-selected": on, tabindex: on ? 0 : -1 });
    }
    if (matrix) return drawMatrix();
    const shown = compute();
    const betas = Object.fromEntries(Object.entries(shown.betas).filter(([k]) => shown.shown.has(k)));
    const support = shown.shown.has("v") && shown.limits ? shown.limits.vertex.rows : [];
    field.draw({ ...shown, betas, support });
    drawWords(shown, drawChart(shown));
    byId("time").value = state.time;
    byId("scale").value = state.scale;
  };

  function drawMatrix() {
    const m = state.matrix;
    matrixTab.draw(m);
    byId("rank").value = m.rank;
    byId("rest").value = m.rest;
    ng.say(byId("rank-text"), String(m.rank));
    ng.say(byId("rest-text"), ng.fixed(10 ** m.rest, 3));
    ng.say(byId("observe"), m.observed[m.entry[0]][m.entry[1]] ? "Hide this entry" : "Observe this entry");
    for (const input of document.getElementsByName("kind")) input.checked = input.value === m.kind;
  }

  let saving;
  function change(update) {
    state = { ...state, ...update };
    clearTimeout(saving);
    saving = setTimeout(() => history.replaceState(null, "", `#${ng.encode(state)}`), 250);
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      ng.redraw();
    });
  }
  ng.current = () => state;
  const changeMatrix = (update) => change({ matrix: { ...state.matrix, ...update } });

  // Points
  const edited = (points, selected = state.selected) => change({ points, selected, story: null });
  const movePoint = (i, x, y) =>
    edited(state.points.map((p, k) => (k === i ? ng.placed({ ...p, x, y }, state.view) : p)), i);
  function add(x, y) {
    if (state.points.length >= ng.MOST_POINTS) return;
    const label = Number(document.querySelector("[name=label]:checked").value);
    edited([...state.points, ng.placed({ x, y, label }, state.view)], state.points.length);
  }
  const flip = () => edited(state.points.map((p, k) => (k === state.selected ? { ...p, label: -p.label } : p)));
  const remove = () =>
    edited(state.points.filter((_, k) => k !== state.selected), Math.max(0, Math.min(state.selected, state.points.length - 2)));
  function key(event) {
    const point = state.points[state.selected];
    const name = event.key.toLowerCase();
    const turn = { n: 1, p: -1 }[name];
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in STEP && point) {
      const k = (event.shiftKey ? 0.02 : 0.1) * (state.view / 5);
      const [dx, dy] = STEP[event.key];
      movePoint(state.selected, point.x + k * dx, point.y + k * dy);
    } else if (turn && point) {
      change({ selected: (state.selected + turn + state.points.length) % state.points.length });
    } else if (name === "a") add(0.5 * state.view, 0.3 * state.view);
    else if (name === "f" && point) flip();
    else if ((name === "delete" || name === "backspace") && point) remove();
    else return;
    event.preventDefault();
    requestAnimationFrame(() => field.focus(state.selected));
  }

  const message = byId("message");
  const chart = new ng.Chart(byId("chart"));
  const select = (i) => i !== state.selected && change({ selected: i });
  const field = new ng.Field(byId("field"), { move: movePoint, add, select, key, drop: () => change({}) });
  const matrixTab = new ng.MatrixTab(
    { entries: byId("entries"), answers: byId("answers"), message: byId("matrix-message") },
    {
      pull: (i, j) => changeMatrix({ entry: [i, j] }),
      observe: () => {
        const [row, column] = state.matrix.entry;
        const flipped = (i, j, seen) => (i === row && j === column ? !seen : seen);
        changeMatrix({ observed: state.matrix.observed.map((line, i) => line.map((seen, j) => flipped(i, j, seen))) });
      },
    }
  );

  // Controls
  const chips = {};
  for (const [name, story] of Object.entries(ng.STORIES)) {
    if (!story.name) continue;
    chips[name] = Object.assign(document.createElement("button"), { type: "button", textContent: story.name });
    chips[name].addEventListener("click", () => change(ng.startOf(name)));
    byId("stories").append(chips[name]);
  }
  const toggles = {};
  for (let k = 0; k < ng.LINES.length; k++) {
    for (const name of [ng.LINES[k], ng.LIMITS[k]]) {
      const button = Object.assign(document.createElement("button"), { type: "button" });
      const mark = `<svg class="mark" viewBox="0 0 26 16" aria-hidden="true"><line x2="26" y1="8" y2="8" class="line line-${name}"/>${ng.BADGES[name] ? `<g class="badge badge-${name}" transform="translate(13 8)"><circle r="8"/><text dy="0.36em">${ng.BADGES[name]}</text></g>` : ""}</svg>`;
      button.innerHTML = `${mark}<span class="name">${ng.NAMES[name]}</span><output></output>`;
      button.addEventListener("click", () => {
        const shown = new Set(state.shown);
        shown.delete(name) || shown.add(name);
        change({ shown });
      });
      toggles[name] = button;
      byId("lines").append(button);
    }
  }
  byId("time").addEventListener("input", (event) => change({ time: Number(event.target.value) }));
  byId("scale").addEventListener("input", (event) => change({ scale: Number(event.target.value), story: null }));
  byId("flip").addEventListener("click", flip);
  byId("delete").addEventListener("click", remove);
  byId("clear").addEventListener("click", () => edited([], 0));
  byId("rank").addEventListener("input", (event) => changeMatrix({ rank: Number(event.target.value) }));
  byId("rest").addEventListener("input", (event) => changeMatrix({ rest: Number(event.target.value) }));
  byId("observe").addEventListener("click", () => matrixTab.on.observe());
  for (const input of document.getElementsByName("kind")) {
    input.addEventListener("change", () => changeMatrix({ kind: input.value }));
  }
  const tabs = { plane: byId("tab-plane"), matrix: byId("tab-matrix") };
  for (const [name, tab] of Object.entries(tabs)) {
    tab.addEventListener("click", () => change({ tab: name }));
    tab.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      const other = name === "plane" ? "matrix" : "plane";
      change({ tab: other });
      tabs[other].focus();
    });
  }
  byId("share").addEventListener("click", async () => {
    history.replaceState(null, "", `#${ng.encode(state)}`);
    const [link, button] = [byId("link"), byId("share")];
    const address = location.href.replace("?embedded", "");
    try {
      await navigator.clipboard.writeText(address);
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy link to this state"), 1500);
    } catch {
      link.hidden = false; // where the page may not write to the clipboard
      link.value = address;
      link.select();
    }
  });
  byId("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    root.dataset.theme = (root.dataset.theme ?? system) === "dark" ? "light" : "dark";
  });
  addEventListener("hashchange", () => change(ng.decode(location.hash, state)));
  ng.redraw();
})((globalThis.natgrad ??= {}));
