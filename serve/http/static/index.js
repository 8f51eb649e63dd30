"use strict";
// The list of models of a server.

const by = (id) => document.getElementById(id);

async function show() {
  const token = sessionStorage.getItem("token");
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch("/v2/repository/index", { method: "POST", headers });
  by("token-row").hidden = answer.status !== 401;
  const found = await answer.json();
  by("message").textContent = answer.ok ? "" : found.error;
  if (!answer.ok) return;
  by("models").replaceChildren(...found.map(rowOf));
}

function rowOf(model) {
  const row = document.createElement("tr");
  const link = document.createElement("a");
  link.href = `/models/${encodeURIComponent(model.name)}`;
  link.textContent = model.name;
  const cells = [link, model.state, model.reason].map((content) => {
    const cell = document.createElement("td");
    cell.append(content);
    return cell;
  });
  row.append(...cells);
  return row;
}

by("use").addEventListener("click", () => {
  sessionStorage.setItem("token", by("token").value);
  show();
});
show();
