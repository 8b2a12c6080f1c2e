// The second tab: pull one entry of a 6 by 6 matrix, and see what each method moves with it.
"use strict";
(function (ng) {
  const N = 6;
  const DEPTHS = [1, 2, 3, 4];
  const LEARNED = [6, 4.5, 3, 2.2, 1.6, 1.2]; // singular values, largest first

  const normed = (v) => v.map((x) => x / Math.hypot(...v));
  const columns = (vectors) => vectors[0].map((_, i) => vectors.map((v) => v[i]));

  // Everyone; one half against the other; then differences within the halves.
  const GROUPS = columns(
    [
      [1, 1, 1, 1, 1, 1], [1, 1, 1, -1, -1, -1], [1, -1, 0, 1, -1, 0],
      [1, -1, 0, -1, 1, 0], [1, 1, -2, 1, 1, -2], [1, 1, -2, -1, -1, 2],
    ].map(normed)
  );

  // Orthogonal columns by Gram and Schmidt from numbers that look random and never change.
  function random(seed) {
    let x = seed;
    const next = () => (x = (x * 16807) % 2147483647) / 2147483647 - 0.5;
    const basis = [];
    while (basis.length < N) {
      let v = Array.from({ length: N }, next);
      for (let twice = 0; twice < 2; twice++) {
        for (const b of basis) {
          const along = v.reduce((s, value, i) => s + value * b[i], 0);
          v = v.map((value, i) => value - along * b[i]);
        }
      }
      basis.push(normed(v));
    }
    return columns(basis);
  }
  const BASES = { groups: [GROUPS, GROUPS], random: [random(1717), random(4242)] };

  ng.MATRIX = {
    kind: "groups",
    rank: 2,
    rest: -1,
    entry: [1, 1],
    observed: ["101100", "010011", "110001", "001110", "100101", "011010"].map((row) => [...row].map((c) => c === "1")),
  };

  // The factors' singular vectors and values in a state of the tab.
  ng.matrixAt = function ({ kind, rank, rest }) {
    const [U, V] = BASES[kind];
    const s = LEARNED.map((value, k) => (k < rank ? value : 10 ** rest));
    return { U, V, s };
  };

  const CARDS = [
    ...DEPTHS.map((d) => ({ group: "egd", name: `EGD, depth ${d}`, pick: (r) => r.gradient[d - 1] })),
    { group: "ngd", name: "NGD, all entries", note: "any depth", pick: (r) => r.all },
    ...[2, 3, 4].map((d) => ({ group: "ngd", name: "NGD, observed", note: `depth ${d}`, pick: (r) => r.observed[d - 1] })),
  ];

  // How much all other entries move, relative to the one that is pulled.
  function spread(move, [row, column]) {
    let sum = 0;
    move.forEach((line, i) => line.forEach((v, j) => (i === row && j === column ? 0 : (sum += v * v))));
    return Math.sqrt(sum) / Math.abs(move[row][column]);
  }

  function words(state, moves) {
    const share = (k) => `${Math.round(100 * spread(moves[k], state.entry))} %`;
    const [row, column] = state.entry.map((k) => k + 1);
    return {
      title: `You pull entry (${row}, ${column}) up. What else moves?`,
      text: `Depth 1 moves nothing else: it cannot generalize. At depth 2 the other entries move by ${share(1)} of the pull in all, at depth 4 by ${share(3)}, along what is learned already. NGD over all entries moves the entry alone, at every depth. NGD over observed entries holds the other ringed entries still and moves the rest.`,
    };
  }

  ng.MatrixTab = class {
    constructor({ entries, answers, message }, on) {
      Object.assign(this, { entries, message, on });
      this.cells = Array.from({ length: N }, (_, i) => {
        const line = document.createElement("div");
        line.setAttribute("role", "row");
        entries.append(line);
        return Array.from({ length: N }, (_, j) => {
          const cell = document.createElement("button");
          cell.type = "button";
          cell.setAttribute("role", "gridcell");
          cell.addEventListener("click", () => on.pull(i, j));
          line.append(cell);
          return cell;
        });
      });
      entries.addEventListener("keydown", (event) => this.key(event));
      this.maps = CARDS.map((card) => this.card(answers, card));
    }

    card(answers, { group, name, note }) {
      const figure = document.createElement("figure");
      figure.className = `answer ${group}`;
      const caption = document.createElement("figcaption");
      caption.innerHTML = `<b>${name}</b>${note ? ` <span>${note}</span>` : ""}`;
      const map = ng.svg(figure, "svg", { viewBox: "0 0 120 120", role: "img" });
      const squares = Array.from({ length: N * N }, (_, k) =>
        ng.svg(map, "rect", { x: 20 * (k % N) + 1, y: 20 * Math.floor(k / N) + 1, width: 18, height: 18, rx: 2 })
      );
      const mark = ng.svg(map, "rect", { class: "pulled", width: 20, height: 20, rx: 3 });
      const number = document.createElement("p");
      figure.prepend(caption);
      figure.append(number);
      answers.append(figure);
      return { map, squares, mark, number, name };
    }

    key(event) {
      const [di, dj] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] ?? [];
      if (di === undefined && event.key.toLowerCase() !== "o") return;
      event.preventDefault();
      if (di === undefined) return this.on.observe();
      const [i, j] = [this.state.entry[0] + di, this.state.entry[1] + dj].map((k) => (k + N) % N);
      this.on.pull(i, j);
      this.cells[i][j].focus();
    }

    draw(state) {
      this.state = state;
      const given = ng.matrixAt(state);
      const beta = ng.compose(given.U, given.s, given.V);
      const moves = ng.responses({ ...given, depths: DEPTHS, observed: state.observed, entry: state.entry });
      const most = Math.max(...beta.flat().map(Math.abs));
      this.cells.forEach((line, i) =>
        line.forEach((cell, j) => {
          const here = i === state.entry[0] && j === state.entry[1];
          const seen = state.observed[i][j];
          cell.textContent = ng.fixed(beta[i][j]);
          cell.className = `${seen ? "seen" : ""} ${here ? "here" : ""}`;
          cell.tabIndex = here ? 0 : -1;
          cell.style.setProperty("--tint", `${Math.round((70 * Math.abs(beta[i][j])) / most)}%`);
          cell.dataset.sign = beta[i][j] < 0 ? "down" : "up";
          cell.setAttribute("aria-selected", here);
          cell.setAttribute("aria-label", `Row ${i + 1}, column ${j + 1}: ${ng.fixed(beta[i][j])}${seen ? ", observed" : ""}${here ? ", pulled" : ""}`);
        })
      );
      const all = CARDS.map((card) => card.pick(moves));
      all.forEach((move, k) => this.drawCard(this.maps[k], move, state.entry));
      const { title, text } = words(state, all);
      this.message.innerHTML = `<h2>${title}</h2><p>${text}</p>`;
    }

    drawCard({ map, squares, mark, number, name }, move, [row, column]) {
      const unit = move[row][column];
      squares.forEach((square, k) => {
        const value = move[Math.floor(k / N)][k % N] / unit;
        ng.set(square, { class: value < 0 ? "down" : "up" });
        square.style.setProperty("--tint", `${Math.round(100 * Math.min(1, Math.abs(value)))}%`);
      });
      ng.set(mark, { x: 20 * column, y: 20 * row });
      const others = Math.round(100 * spread(move, [row, column]));
      number.textContent = others ? `others move ${others} %` : "nothing else moves";
      ng.set(map, { "aria-label": `${name}: ${number.textContent}` });
    }
  };
})((globalThis.natgrad ??= {}));
