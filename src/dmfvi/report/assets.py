"""Style and script of a report's page."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1d2733; --soft: #5b6b7b; --line: #d9e0e6; --warn: #fff4e0;
        --mark: #0072b2; --shade: #8d99a6aa; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #14191f; --ink: #e6ecf1; --soft: #9fb0bf; --line: #2c3742; --warn: #3a2d12; --mark: #56b4e9;
          --shade: #9fb0bfaa; }
}
body { margin: 0 auto; max-width: 70rem; padding: 1rem; background: var(--paper); color: var(--ink);
       font: 16px/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.6rem; margin: 0.5rem 0; } h2 { font-size: 1.15rem; margin: 2rem 0 0.3rem; }
.panel > h2:first-child { margin-top: 1rem; }
p.lead { font-size: 1.05rem; } p.note { color: var(--soft); margin: 0.2rem 0 0.6rem; }
.warning { background: var(--warn); border-left: 4px solid #e69f00; padding: 0.5rem 0.8rem; margin: 0.6rem 0; }
.scroll { overflow-x: auto; background: linear-gradient(to right, var(--paper) 30%, transparent) left / 3rem 100% local,
          linear-gradient(to left, var(--paper) 30%, transparent) right / 3rem 100% local,
          linear-gradient(to right, var(--shade), transparent) left / 0.9rem 100% scroll,
          linear-gradient(to left, var(--shade), transparent) right / 0.9rem 100% scroll; background-repeat: no-repeat; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
td, th { padding: 0.25rem 0.7rem; border-bottom: 1px solid var(--line); text-align: right; }
td:first-child, th:first-child { text-align: left; }
.numbers td:not(:first-child) { white-space: nowrap; }
.turn { font: inherit; font-size: 0.85rem; color: var(--ink); background: none; border: 1px solid var(--line);
        border-radius: 3px; padding: 0.35rem 0.9rem; cursor: pointer; }
.picture { width: 100%; }
nav { display: flex; flex-wrap: wrap; gap: 0 0.2rem; margin: 1rem 0 0; border-bottom: 1px solid var(--line); }
nav a { color: var(--soft); padding: 0.5rem 0.6rem; text-decoration: none; border-bottom: 3px solid transparent; }
nav a:hover { color: var(--ink); }
nav a[aria-selected="true"] { color: var(--ink); border-bottom-color: var(--mark); }
nav a:focus-visible { outline: 2px solid var(--mark); outline-offset: 2px; }
.panel { scroll-margin-top: 100vh; }
.panel:focus-visible { outline: none; box-shadow: -12px 0 0 -9px var(--mark); }
footer { margin-top: 3rem; color: var(--soft); font-size: 0.85rem; }
@media (max-width: 600px) { td, th { padding: 0.25rem 0.2rem; font-size: 0.78rem; } nav a { padding: 0.5rem 0.45rem; } }
@media print { nav { display: none; } .panel[hidden] { display: block; } .turn { display: none; } .picture, table { break-inside: avoid; } }
"""

#: tabs of the sections, which without it follow each other; a figure is drawn when it is first seen, in the colours of the page
SCRIPT = """
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const bar = document.querySelector("nav");
const tabs = [...bar.querySelectorAll("a")];
const panels = tabs.map(tab => document.querySelector(tab.getAttribute("href")));
const drawn = new Map();

function needPlotly() {  // run when a figure is first seen: reading it takes longer than the rest of the page
  if (window.Plotly) return;
  const script = document.createElement("script");
  script.textContent = document.getElementById("plotly").textContent;
  document.head.append(script);
}

function draw(box) {
  needPlotly();
  if (!drawn.has(box)) drawn.set(box, JSON.parse(document.getElementById("data-" + box.id).textContent));
  const figure = drawn.get(box);
  const style = getComputedStyle(document.documentElement);
  const ink = style.getPropertyValue("--ink").trim(), line = style.getPropertyValue("--line").trim();
  const layout = structuredClone(figure.layout);
  layout.paper_bgcolor = layout.plot_bgcolor = "rgba(0,0,0,0)";
  layout.font = {color: ink, family: "system-ui, sans-serif"};
  for (const key of Object.keys(layout)) {
    if (/^[xy]axis/.test(key)) { layout[key].gridcolor = line; layout[key].zerolinecolor = line; }
  }
  for (const axis of Object.values(layout.scene || {})) {
    if (axis.showbackground === false) axis.gridcolor = axis.zerolinecolor = line;
  }
  if (layout.scene && box.clientWidth < 600) {  // from further away: the whole box is seen on a telephone
    const eye = layout.scene.camera.eye;
    for (const axis of "xyz") eye[axis] *= 1.85;
  }
  for (const note of layout.annotations || []) if (note.bgcolor) note.bgcolor = style.getPropertyValue("--paper").trim();
  for (const menu of layout.updatemenus || []) { menu.bgcolor = "rgba(0,0,0,0)"; menu.bordercolor = line; }
  const config = {responsive: true, displayModeBar: false, logging: 0};
  Plotly.react(box, {data: figure.data, layout, frames: figure.frames, config});
  if (layout.scene && !box.nextElementSibling?.classList.contains("turn")) box.after(turner(box));
}

function turner(box) {  // a button that turns the figure until it is pressed again
  const button = document.createElement("button");
  let turning = null;
  button.type = "button";
  button.className = "turn";
  button.textContent = "Turn";
  button.addEventListener("click", () => {
    if (turning === null) turning = setInterval(() => {
      if (box.offsetParent === null) return;
      const {x, y, z} = box._fullLayout.scene._scene.getCamera().eye;
      const c = Math.cos(0.03), s = Math.sin(0.03);
      Plotly.relayout(box, {"scene.camera.eye": {x: c * x - s * y, y: s * x + c * y, z}});
    }, 50);
    else { clearInterval(turning); turning = null; }
    button.textContent = turning === null ? "Turn" : "Stop";
  });
  return button;
}

function fill(panel) {
  for (const box of panel.querySelectorAll(".picture")) {
    if (drawn.has(box)) Plotly.Plots.resize(box); else draw(box);
  }
}

function show(position) {
  tabs.forEach((tab, at) => {
    tab.setAttribute("aria-selected", at === position);
    tab.tabIndex = at === position ? 0 : -1;
    panels[at].hidden = at !== position;
  });
  fill(panels[position]);
}

function choose(position) {
  show(position);
  history.replaceState(null, "", "#" + panels[position].id);
}

function follow() {
  const target = document.getElementById(location.hash.slice(1));
  const position = target === null ? -1 : panels.indexOf(target.closest(".panel"));
  show(Math.max(position, 0));
  if (position >= 0 && !panels.includes(target)) target.scrollIntoView();
}

bar.setAttribute("role", "tablist");
tabs.forEach((tab, at) => {
  tab.setAttribute("role", "tab");
  tab.setAttribute("aria-controls", panels[at].id);
  panels[at].setAttribute("role", "tabpanel");
  panels[at].setAttribute("aria-labelledby", tab.id);
  panels[at].tabIndex = 0;
  tab.addEventListener("click", event => { event.preventDefault(); choose(at); });
  tab.addEventListener("keydown", event => {
    const last = tabs.length - 1;
    const next = {ArrowRight: at === last ? 0 : at + 1, ArrowLeft: at === 0 ? last : at - 1, Home: 0, End: last, " ": at}[event.key];
    if (next === undefined) return;
    event.preventDefault();
    choose(next);
    tabs[next].focus();
  });
});
window.addEventListener("hashchange", follow);
window.addEventListener("unhandledrejection", event => {  // Plotly rejects what it played, without a reason, when it is stopped
  if (event.reason === undefined) event.preventDefault();
});
window.addEventListener("beforeprint", () => panels.forEach(panel => { panel.hidden = false; fill(panel); }));
window.addEventListener("afterprint", () => show(tabs.findIndex(tab => tab.getAttribute("aria-selected") === "true")));
dark.addEventListener("change", () => {
  for (const box of drawn.keys()) if (!box.closest(".panel").hidden) draw(box); else { Plotly.purge(box); drawn.delete(box); }
});
follow();
"""
