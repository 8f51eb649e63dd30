"use strict";
// The page of one model: send a file or a text, and show the task's answer with its timing.

const by = (id) => document.getElementById(id);
const name = decodeURIComponent(location.pathname.split("/").pop());
const KINDS = {
  jpg: "image/jpeg", jpeg: "image/jpeg", png: "image/png", bmp: "image/bmp", webp: "image/webp", tif: "image/tiff",
  tiff: "image/tiff", wav: "audio/wav", flac: "audio/flac", ogg: "audio/ogg", txt: "text/plain", csv: "text/csv",
  tsv: "text/tab-separated-values", json: "application/json", jsonl: "application/jsonl", npz: "application/x-npz",
};
let about = {};

function headers(kind) {
  const token = sessionStorage.getItem("token");
  return { ...(kind ? { "Content-Type": kind } : {}), ...(token ? { Authorization: `Bearer ${token}` } : {}) };
}

function complain(text) {
  by("message").textContent = text;
}

async function load() {
  by("name").textContent = document.title = name;
  const answer = await fetch(`/v2/models/${encodeURIComponent(name)}`, { headers: headers() });
  const found = await answer.json();
  by("token-row").hidden = answer.status !== 401;
  complain(answer.ok ? "" : found.error);
  if (!answer.ok) return;
  about = found.parameters;
  const engine = about.simulated ? `${about.engine} (simulated)` : about.engine;
  by("about").textContent = about.task ? `${about.task}, ${engine}` : `tensors only, ${engine}`;
  by("text-form").hidden = !about.texts;
  by("file-form").hidden = !about.task;
  by("record-row").hidden = about.domain !== "speech" || !navigator.mediaDevices;
  const rows = [["input", found.inputs], ["output", found.outputs]];
  by("tensors").replaceChildren(...rows.flatMap(([kind, tensors]) => tensors.map((one) => tensorRow(kind, one))));
}

function tensorRow(kind, tensor) {
  const row = document.createElement("tr");
  for (const text of [kind, tensor.name, tensor.datatype, tensor.shape.join(" x ")]) {
    row.append(Object.assign(document.createElement("td"), { textContent: text }));
  }
  return row;
}

async function ask(body, kind) {
  complain("");
  const start = performance.now();
  try {
    const answer = await fetch(`/v2/models/${encodeURIComponent(name)}/answer?rendering=true`, {
      method: "POST", headers: headers(kind), body,
    });
    const found = await answer.json();
    if (!answer.ok) throw new Error(found.error);
    show(found, body, kind, performance.now() - start);
  } catch (error) {
    by("result").hidden = true;
    complain(error.message);
  }
}

async function complete(prompt) {
  complain("");
  const start = performance.now();
  let text = "", first = 0;
  try {
    const answer = await fetch("/v1/completions", {
      method: "POST", headers: headers("application/json"),
      body: JSON.stringify({ model: name, prompt, stream: true, temperature: 0, max_tokens: 40 }),
    });
    if (!answer.ok) throw new Error((await answer.json()).error.message);
    by("result").hidden = false;
    for await (const event of events(answer.body)) {
      if (event.error) throw new Error(event.error.message);
      first = first || performance.now() - start;
      text += event.choices[0].text;
      by("answer").textContent = prompt + text;
      by("timing").textContent = `first piece after ${first.toFixed(0)} ms, all after ${(performance.now() - start).toFixed(0)} ms`;
    }
  } catch (error) {
    complain(error.message);
  }
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (waiting + value).split("\n\n");
    waiting = parts.pop();
    for (const part of parts) {
      const data = part.replace(/^data: /, "");
      if (data !== "[DONE]") yield JSON.parse(data);
    }
  }
}

function show(found, body, kind, milliseconds) {
  by("result").hidden = false;
  by("answer").textContent = found.answers.map((one) => one.error ? `no answer: ${one.error}` : one.text).join("\n");
  const times = Object.entries(found.timing).map(([key, value]) => `${key.replace("_s", "")} ${(value * 1000).toFixed(1)} ms`);
  by("timing").textContent = `${times.join(", ")}; in this browser ${milliseconds.toFixed(0)} ms`;
  const drawn = found.answers[0].rendering;
  setFigure("sample", typeof body === "string" ? "" : URL.createObjectURL(body), kind);
  setFigure("rendering", drawn ? `data:${drawn.media_type};base64,${drawn.base64}` : "", drawn ? drawn.media_type : "");
  for (const one of found.answers) delete one.rendering;
  by("json").textContent = JSON.stringify(found, null, 1);
}

function setFigure(id, source, kind) {
  const figure = by(id);
  figure.querySelectorAll("img, audio").forEach((one) => one.remove());
  const tag = kind.startsWith("image/") ? "img" : kind.startsWith("audio/") ? "audio" : "";
  figure.hidden = !source || !tag;
  if (figure.hidden) return;
  const element = document.createElement(tag);
  element.src = source;
  if (tag === "audio") element.controls = true;
  else element.alt = id;
  figure.prepend(element);
}

function send(file) {
  const kind = KINDS[file.name.split(".").pop().toLowerCase()] || file.type;
  ask(file, kind);
}

// 16-bit mono WAV of recorded samples.
function wav(samples, rate) {
  const view = new DataView(new ArrayBuffer(44 + samples.length * 2));
  const text = (place, word) => [...word].forEach((letter, i) => view.setUint8(place + i, letter.charCodeAt(0)));
  text(0, "RIFF");
  view.setUint32(4, 36 + samples.length * 2, true);
  text(8, "WAVEfmt ");
  [[16, 16, 4], [20, 1, 2], [22, 1, 2], [24, rate, 4], [28, rate * 2, 4], [32, 2, 2], [34, 16, 2]].forEach(([place, value, size]) =>
    size === 4 ? view.setUint32(place, value, true) : view.setUint16(place, value, true));
  text(36, "data");
  view.setUint32(40, samples.length * 2, true);
  samples.forEach((one, i) => view.setInt16(44 + i * 2, Math.max(-1, Math.min(1, one)) * 32767, true));
  return new File([view], "recorded.wav", { type: "audio/wav" });
}

let recorder = null;

async function record() {
  if (recorder) {
    recorder.stop();
    return;
  }
  try {
    const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
    const parts = [];
    recorder = new MediaRecorder(stream);
    recorder.ondataavailable = (event) => parts.push(event.data);
    recorder.onstop = async () => {
      stream.getTracks().forEach((track) => track.stop());
      recorder = null;
      by("record").textContent = "Record";
      const context = new AudioContext();
      const sound = await context.decodeAudioData(await new Blob(parts).arrayBuffer());
      send(wav(sound.getChannelData(0), sound.sampleRate));
    };
    recorder.start();
    by("record").textContent = "Stop";
  } catch (error) {
    complain(error.message);
  }
}

by("file").addEventListener("change", () => by("file").files.length && send(by("file").files[0]));
by("record").addEventListener("click", record);
by("text-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = by("text").value;
  if (about.streams) complete(text);
  else ask(text, "text/plain");
});
for (const kind of ["dragover", "dragleave", "drop"]) {
  by("drop").addEventListener(kind, (event) => {
    event.preventDefault();
    by("drop").classList.toggle("over", kind === "dragover");
    if (kind === "drop" && event.dataTransfer.files.length) send(event.dataTransfer.files[0]);
  });
}
by("use").addEventListener("click", () => {
  sessionStorage.setItem("token", by("token").value);
  load();
});
load();
