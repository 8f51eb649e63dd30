"use strict";
// Search, filters and sorting of the page's table. The state lives in the URL's hash, so that a view can be sent to somebody:
// #q=resnet&verdict=FAIL&sort=2d. A hash without "=" is an ordinary anchor.
(() => {
  const table = document.querySelector("table.cards.all") || document.querySelector("table.cards");
  const sections = (row) => document.getElementById(row.dataset.section || "");
  const openTarget = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target instanceof HTMLDetailsElement) { target.hidden = false; target.open = true; target.scrollIntoView(); }
  };
  const wide = matchMedia("(min-width: 47.01rem)").matches;
  for (const part of document.querySelectorAll("details.rest")) part.open = wide || location.hash.includes("=");
  if (!document.querySelector(".count")) return;  // a page of several tables has no search

  const cards = [...document.querySelectorAll(".model[data-text]")];  // the page of the zoo has cards instead of rows
  const body = cards.length ? null : table.tBodies[0];
  const rows = cards.length ? cards : [...body.rows];
  const groups = [...document.querySelectorAll(".domain")];
  const controls = [...document.querySelectorAll("[data-key]")];
  const headings = body ? [...table.tHead.rows[0].cells] : [];
  const count = document.querySelector(".count");
  const nothing = document.querySelector(".nothing");
  let order = "";

  const fold = (text) => text.normalize("NFKC").toLowerCase();
  const fits = (row) => controls.every(({ dataset: { key }, value }) => {
    if (!value.trim()) return true;
    if (key !== "q") return (row.dataset[key] || "").split("\n").includes(value);
    return fold(value).split(/\s+/).filter(Boolean).every((word) => fold(row.dataset.text).includes(word));
  });

  const filter = () => {
    let shown = 0;
    for (const row of rows) {
      row.hidden = !fits(row);
      shown += !row.hidden;
      const section = sections(row);
      if (section) section.hidden = row.hidden;
    }
    for (const group of groups) group.hidden = !group.querySelector("[data-text]:not([hidden])");
    const unit = count.dataset.unit;
    count.textContent = shown === rows.length ? `${shown} ${unit}${shown === 1 ? "" : "s"}` : `${shown} of ${rows.length} ${unit}s`;
    nothing.hidden = shown > 0;
  };

  const compare = (column, numeric) => (one, other) => {
    const [a, b] = [one, other].map((row) => row.cells[column]);
    if (!numeric) return a.textContent.trim().localeCompare(b.textContent.trim(), undefined, { numeric: true });
    const [x, y] = [a, b].map((cell) => (cell.dataset.sort === "" ? NaN : Number(cell.dataset.sort)));
    return Number.isNaN(x) || Number.isNaN(y) ? Number.isNaN(x) - Number.isNaN(y) : x - y;
  };

  const sort = () => {
    const column = parseInt(order, 10);
    const down = order.endsWith("d");
    headings.forEach((cell, index) => {
      if (cell.hasAttribute("aria-sort")) cell.setAttribute("aria-sort", index !== column ? "none" : down ? "descending" : "ascending");
    });
    const button = headings[column] && headings[column].querySelector("button");
    const sorted = [...rows];
    if (button) {
      sorted.sort(compare(column, button.dataset.kind.startsWith("number")));
      if (down) sorted.reverse();
    }
    if (body) body.append(...sorted);
  };

  const save = () => {
    const state = new URLSearchParams();
    for (const { dataset: { key }, value } of controls) if (value) state.set(key, value);
    if (order) state.set("sort", order);
    history.replaceState(null, "", state.size ? `#${state}` : location.pathname + location.search);
  };

  const load = () => {
    const hash = location.hash.slice(1);
    if (hash && !hash.includes("=")) { openTarget(); return; }
    const state = new URLSearchParams(hash);
    for (const control of controls) control.value = state.get(control.dataset.key) || "";
    order = state.get("sort") || "";
    filter();
    sort();
  };

  for (const control of controls) control.addEventListener("input", () => { filter(); save(); });
  headings.forEach((cell, index) => {
    const button = cell.querySelector("button");
    if (button) button.addEventListener("click", () => { order = order === `${index}a` ? `${index}d` : `${index}a`; sort(); save(); });
  });
  const all = document.querySelector("button.fold");
  if (all) all.addEventListener("click", () => {
    const open = all.getAttribute("aria-expanded") !== "true";
    for (const section of document.querySelectorAll("details.case")) section.open = open;
    all.setAttribute("aria-expanded", String(open));
    all.textContent = open ? "close all" : "open all";
  });
  document.addEventListener("click", (event) => {  // a link to where one already is changes no hash
    const link = event.target.closest('a[href^="#"]');
    if (link && link.getAttribute("href") === location.hash) openTarget();
  });
  window.addEventListener("hashchange", load);
  filter();
  load();
})();
