
"use strict";
(() => {
  const root = document.documentElement;
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => root.dataset.theme ? root.dataset.theme === "dark" : prefersDark.matches;

  // A page opened from a file may have no storage; the choice then lasts as long as the page.
  const remembered = {
    get: () => { try { return localStorage.getItem("natgrad-theme"); } catch { return null; } },
    set: (theme) => { try { localStorage.setItem("natgrad-theme", theme); } catch { /* none */ } },
  };
  if (["light", "dark"].includes(remembered.get())) root.dataset.theme = remembered.get();

  function theme() {
    const button = document.getElementById("theme");
    const show = () => { button.textContent = isDark() ? "Light" : "Dark"; };
    button.addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      remembered.set(root.dataset.theme);
      show();
    });
    prefersDark.addEventListener("change", show);
    show();
    button.hidden = false;
  }

  // Rows by one column; cells with nothing to compare stay last either way.
  function sortBy(table, heads, column) {
    const head = heads[column];
    const down = head.getAttribute("aria-sort") === "ascending";
    const key = (row) => {
      const cell = row.cells[column];
      return (cell.dataset.sort ?? cell.textContent).trim();
    };
    const collator = new Intl.Collator("en", { numeric: true });
    const compare = (a, b) => {
      if (a === "" || b === "") return (a === "") - (b === "");
      const difference = a - b;
      const order = Number.isNaN(difference) ? collator.compare(a, b) : difference;
      return down ? -order : order;
    };
    const body = table.tBodies[0];
    body.append(...[...body.rows].sort((a, b) => compare(key(a), key(b))));
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
  }

  function tables() {
    for (const table of document.querySelectorAll("table.sortable")) {
      const heads = [...table.tHead.rows[0].cells];
      heads.forEach((head, column) => {
        head.firstElementChild.addEventListener("click", () => sortBy(table, heads, column));
      });
    }
  }

  // The picture is in the page once; its link to save it takes it from there.
  function pictures() {
    for (const link of document.querySelectorAll("a[data-picture]")) {
      link.href = link.closest("figure").querySelector("img").src;
      link.hidden = false;
    }
  }

  // The stage scrolls, so touch, wheels and arrow keys pan by themselves.
  function zoom() {
    const dialog = document.getElementById("zoom");
    const stage = dialog.querySelector(".stage");
    const image = stage.querySelector("img");
    let scale = 1;

    function resize(wanted, x = stage.clientWidth / 2, y = stage.clientHeight / 2) {
      const before = image.getBoundingClientRect();
      const box = stage.getBoundingClientRect();
      const [u, v] = [(box.left + x - before.left) / before.width, (box.top + y - before.top) / before.height];
      const ratio = image.naturalWidth / image.naturalHeight;
      const fit = Math.min(stage.clientWidth, stage.clientHeight * ratio);
      scale = Math.min(Math.max(wanted, 1), 40);
      image.style.width = `${fit * scale}px`;
      const after = image.getBoundingClientRect();
      stage.scrollLeft += after.left + u * after.width - (box.left + x);
      stage.scrollTop += after.top + v * after.height - (box.top + y);
    }

    for (const button of document.querySelectorAll(".picture")) {
      button.addEventListener("click", () => {
        const shown = button.querySelector("img");
        image.src = shown.src;
        image.alt = shown.alt;
        document.getElementById("zoom-title").textContent = shown.alt;
        dialog.showModal();
        stage.focus();
        image.decode().then(() => resize(1), () => resize(1));
      });
    }
    for (const button of dialog.querySelectorAll("[data-zoom]")) {
      button.addEventListener("click", () => {
        const action = button.dataset.zoom;
        if (action === "close") dialog.close();
        else resize(action === "fit" ? 1 : scale * Number(action));
      });
    }
    dialog.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "+" || event.key === "=") resize(scale * 1.25);
      else if (event.key === "-") resize(scale * 0.8);
      else if (event.key === "0") resize(1);
    });
    stage.addEventListener("wheel", (event) => {
      event.preventDefault();
      const box = stage.getBoundingClientRect();
      resize(scale * Math.exp(-event.deltaY / 400), event.clientX - box.left, event.clientY - box.top);
    }, { passive: false });
    stage.addEventListener("pointerdown", (event) => {
      if (event.pointerType === "mouse" && event.button === 0) stage.setPointerCapture(event.pointerId);
    });
    stage.addEventListener("pointermove", (event) => {
      if (stage.hasPointerCapture(event.pointerId)) stage.scrollBy(-event.movementX, -event.movementY);
    });
    image.draggable = false;
    window.addEventListener("resize", () => { if (dialog.open) resize(scale); });
  }

  document.addEventListener("DOMContentLoaded", () => { theme(); tables(); pictures(); zoom(); });
})();
