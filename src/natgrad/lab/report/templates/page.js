
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

  // The picture is in the page once; links to save it take it from there, as it is or as a PNG.
  function pictures() {
    for (const link of document.querySelectorAll("a[data-picture]")) {
      const image = link.closest("figure").querySelector("img");
      link.href = image.src;
      link.hidden = false;
      if (link.dataset.picture !== "PNG" || image.src.startsWith("data:image/png")) continue;
      link.addEventListener("click", () => {
        const canvas = document.createElement("canvas");
        [canvas.width, canvas.height] = [2 * image.naturalWidth, 2 * image.naturalHeight];
        canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
        link.href = canvas.toDataURL("image/png");
      });
    }
  }

  // Tables are packed to a quarter of their size; a click unpacks one and saves it.
  function downloads() {
    for (const link of document.querySelectorAll(".downloads a")) {
      link.addEventListener("click", async (event) => {
        if (!link.download.endsWith(".gz")) return;
        event.preventDefault();
        const packed = Uint8Array.from(atob(link.href.split(",")[1]), (c) => c.charCodeAt(0));
        const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
        link.href = URL.createObjectURL(await new Response(stream).blob());
        link.download = link.download.replace(/\.gz$/, "");
        link.click();
      });
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

  // Each picture is in the page once; thumbnails take it from there.
  function thumbnails() {
    for (const small of document.querySelectorAll("[data-thumbnail]")) {
      const picture = document.querySelector(`#${CSS.escape(small.dataset.thumbnail)} .picture img`);
      if (!picture) continue;
      small.src = picture.src;
      small.hidden = false;
    }
  }

  // On a narrow screen the panels of a picture stand one below the other.
  function panels() {
    const narrow = matchMedia("(max-width: 46rem)");
    async function split(button) {
      const whole = button.querySelector("img");
      await whole.decode().catch(() => null);
      const [width, height] = [whole.naturalWidth, whole.naturalHeight];
      for (const [x, y, w, h] of JSON.parse(button.dataset.panels)) {
        const panel = document.createElement("span");
        const image = Object.assign(new Image(), { src: whole.src, alt: "" });
        panel.className = "panel";
        panel.style.aspectRatio = `${w * width} / ${h * height}`;
        panel.style.maxWidth = `${1.6 * w * width}px`;
        Object.assign(image.style, { width: `${100 / w}%`, left: `${(-100 * x) / w}%`, top: `${(-100 * y) / h}%` });
        panel.append(image);
        button.append(panel);
      }
      button.classList.add("apart");
    }
    function arrange() {
      for (const button of document.querySelectorAll(".picture[data-panels]")) {
        if (narrow.matches && !button.querySelector(".panel")) split(button);
        if (!narrow.matches) {
          button.classList.remove("apart");
          button.querySelectorAll(".panel").forEach((panel) => panel.remove());
        }
      }
    }
    narrow.addEventListener("change", arrange);
    arrange();
  }

  document.addEventListener("DOMContentLoaded", () => {
    theme(); tables(); pictures(); downloads(); zoom(); thumbnails(); panels();
  });
})();
