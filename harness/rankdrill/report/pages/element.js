"use strict";
// What pages are made of. Everything recorded is written as text, by `element`; nothing is ever parsed as HTML.

const data = JSON.parse(document.getElementById("data").textContent);
const said = (number) => data.strings[number];

function made(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  const wanted = children.filter((child) => child !== null);
  node.append(...wanted.map((child) => child instanceof Node ? child : String(child)));
  return node;
}

function element(name, attributes = {}, ...children) {
  return made(document.createElement(name), attributes, children);
}

function drawn(name, attributes = {}, ...children) {
  return made(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

// "ranks 0, 2-5", as reports have it.
function ranksIn(ranks) {
  const sorted = [...ranks].sort((one, other) => one - other);
  if (sorted.length <= 8) return `rank${sorted.length === 1 ? "" : "s"} ${sorted.join(", ")}`;
  const runs = [];
  for (const rank of sorted) {
    const last = runs[runs.length - 1];
    if (last && last[1] === rank - 1) last[1] = rank;
    else runs.push([rank, rank]);
  }
  return `ranks ${runs.map(([first, last]) => first === last ? first : `${first}-${last}`).join(", ")}`;
}
