// The page of a run: what is wrong, the last calls side by side, steps in time, who waits for whom, stacks.

const [OPEN, RAISED, STRUCK, FAULT, MET] = [1, 2, 4, 8, 16];
const LABEL = 190, ROW = 22, BAR = 16, LETTER = 6.5, NARROWEST = 440; // px
const MOST_ROWS = 64; // of one group of ranks, when it is unfolded
const MOST_BARS = 12000; // of the whole picture: narrow ones are drawn as one
const MOST_NODES = 24;
const SHORT = 14; // how many of the last calls are set side by side

const MOST_LANES = data.lanes.length;
const count = (lane) => lane.steps.begin.length;
const hues = (rank) => `hsl(${(rank * 67 + 210) % 360} 60% 50%)`;

// Ranks that ended in one state, in one call, waiting for the same, share a row until they are asked for.
function folded() {
  const alike = new Map();
  for (const lane of data.lanes) {
    const last = count(lane) - 1;
    const state = [lane.status, lane.role, said(lane.told), lane.waits, last < 0 ? "" : lane.steps.op[last],
      last < 0 ? "" : lane.steps.number[last]];
    const key = JSON.stringify(state);
    alike.set(key, [...(alike.get(key) ?? []), lane]);
  }
  const weight = (lanes) => ["culprit", "victim", ""].indexOf(lanes[0].role);
  return [...alike.values()].map((lanes) => ({ lanes, open: false }))
    .sort((one, other) => weight(one.lanes) - weight(other.lanes) || one.lanes[0].rank - other.lanes[0].rank);
}

const groups = folded();

function rows() {
  return groups.flatMap((group) => [
    { name: ranksIn(group.lanes.map((lane) => lane.rank)), lane: group.lanes[0], group },
    ...(group.open ? group.lanes.slice(0, MOST_ROWS).map((lane) => ({ name: `rank ${lane.rank}`, lane })) : []),
  ]);
}

// ------------------------------------------------------------------------------------------------ in words

function head() {
  const verdict = element("p", { class: data.ok ? "verdict good" : "verdict bad" }, data.headline);
  const many = `${data.lanes.length} rank${data.lanes.length === 1 ? "" : "s"}`;
  return element("header", {}, element("h1", {}, data.title), verdict,
    element("p", { class: "soft" }, data.elapsed ? `${many}, ${data.elapsed} s` : many));
}

function words() {
  return data.blocks.flatMap((block) => [
    block.heading === data.headline ? null : element("p", {}, block.heading),
    block.text ? element("pre", {}, block.text) : null,
  ]).filter((each) => each !== null);
}

function repeat() {
  if (!data.repeat) return [];
  const copy = element("button", { type: "button", class: "plain" }, "copy");
  copy.addEventListener("click", () => navigator.clipboard?.writeText(data.repeat));
  return [element("h2", {}, "To run it again"), element("pre", { id: "repeat" }, data.repeat), copy];
}

// ------------------------------------------------------------------------------------------------ the last calls

// The group that is spoken of: that of the finding, or else the one of most collectives.
function spokenOf() {
  const counts = new Map();
  for (const lane of data.lanes) {
    lane.steps.number.forEach((number, at) => {
      if (number < 0) return;
      const weight = lane.steps.flags[at] & MET ? MOST_LANES * 1e6 : 1;
      counts.set(lane.steps.group[at], (counts.get(lane.steps.group[at]) ?? 0) + weight);
    });
  }
  return [...counts].sort((one, other) => other[1] - one[1])[0]?.[0];
}

function callsOf(lane, group) {
  const calls = new Map();
  lane.steps.number.forEach((number, at) => {
    if (number >= 0 && lane.steps.group[at] === group) calls.set(number, at);
  });
  return calls;
}

function sideBySide() {
  const group = spokenOf();
  if (group === undefined) return [];
  const shown = rows().map((row) => ({ ...row, calls: callsOf(row.lane, group) }));
  const numbers = [...new Set(shown.flatMap((row) => [...row.calls.keys()]))].sort((one, other) => one - other);
  const met = numbers.findIndex((number) => shown.some((row) => row.lane.steps.flags[row.calls.get(number)] & MET));
  const until = met < 0 ? numbers.length : Math.min(numbers.length, met + 4);
  const columns = numbers.slice(Math.max(0, until - SHORT), until);
  const usual = new Map(columns.map((number) => [number, most(shown, number)]));
  const top = element("tr", {}, element("th", {}, ""), ...columns.map((number) => element("th", {}, `#${number}`)));
  const body = shown.map((row) => element("tr", {}, element("th", { scope: "row" }, row.name),
    ...columns.map((number) => call(row, number, usual.get(number)))));
  return [
    element("h2", {}, `The last collectives of '${said(group)}', by number`),
    element("div", { class: "scroll" }, element("table", { class: "calls" },
      element("thead", {}, top), element("tbody", {}, ...body))),
  ];
}

function most(shown, number) {
  const counts = new Map();
  for (const row of shown) {
    const at = row.calls.get(number);
    const op = at === undefined ? "" : row.lane.steps.op[at];
    const weight = row.group ? row.group.lanes.length : 0;
    counts.set(op, (counts.get(op) ?? 0) + weight);
  }
  return [...counts].sort((one, other) => other[1] - one[1])[0]?.[0];
}

function call(row, number, usual) {
  const at = row.calls.get(number);
  const steps = row.lane.steps;
  if (at === undefined) {
    const dropped = row.lane.dropped && ![...row.calls.keys()].some((other) => other < number);
    return element("td", { class: "none", title: dropped ? "no longer known" : "never entered" }, dropped ? "?" : "·");
  }
  const flags = steps.flags[at];
  const kinds = [["open", flags & OPEN], ["odd", steps.op[at] !== usual], ["fault", flags & FAULT],
    ["struck", flags & STRUCK]];
  const title = [said(steps.text[at]), said(steps.site[at])].filter(Boolean).join(", at ");
  return element("td", { class: kinds.filter(([, is]) => is).map(([name]) => name).join(" "), title },
    said(steps.op[at]), flags & OPEN ? " …" : "");
}

// ------------------------------------------------------------------------------------------------ steps in time

const whole = (() => {
  let end = 1;
  for (const lane of data.lanes) {
    lane.steps.begin.forEach((begin, at) => { end = Math.max(end, begin + Math.max(0, lane.steps.took[at])); });
  }
  return [0, end * 1.12 + 1]; // room for those that never came out
})();
let seen = addressed() ?? whole;

function addressed() {
  const found = /from=([\d.]+)&to=([\d.]+)/.exec(location.hash);
  return found && Number(found[2]) > Number(found[1]) ? [Number(found[1]), Number(found[2])] : null;
}

function timeline(show) {
  const place = element("div", { class: "lanes", tabindex: "0", "aria-label": "steps in time" });
  const fill = () => place.replaceChildren(picture(Math.max(place.clientWidth - 14, NARROWEST), fill, show));
  const zoom = (by, at = 0.5) => {
    const [from, to] = seen;
    const pin = from + (to - from) * at;
    seen = by === 0 ? whole : [Math.max(0, pin - (pin - from) * by), Math.min(whole[1], pin + (to - pin) * by)];
    if (seen[1] - seen[0] < 2) seen = [seen[0], seen[0] + 2];
    fill();
  };
  const pan = (by) => {
    const width = seen[1] - seen[0];
    const from = Math.min(Math.max(0, seen[0] + width * by), whole[1] - width);
    seen = [from, from + width];
    fill();
  };
  place.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const box = place.getBoundingClientRect();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, Math.max(0, (event.clientX - box.left - LABEL) / (box.width - LABEL)));
  }, { passive: false });
  place.addEventListener("keydown", (event) => {
    const does = { "+": () => zoom(0.5), "-": () => zoom(2), 0: () => zoom(0), ArrowLeft: () => pan(-0.25),
      ArrowRight: () => pan(0.25) }[event.key];
    if (does) { does(); event.preventDefault(); }
  });
  const button = (text, title, does) => {
    const one = element("button", { type: "button", class: "plain", title }, text);
    one.addEventListener("click", does);
    return one;
  };
  const bar = element("p", { class: "tools" },
    button("+", "zoom in", () => zoom(0.5)), button("−", "zoom out", () => zoom(2)), button("all", "the whole run",
      () => zoom(0)), button("◀", "earlier", () => pan(-0.25)), button("▶", "later", () => pan(0.25)),
    button("end", "the last steps", () => { seen = last(); fill(); }),
    button("unfold", "a line for each rank", () => {
      const open = groups.every((group) => group.open || group.lanes.length === 1);
      for (const group of groups) group.open = !open && group.lanes.length > 1;
      fill();
    }),
    element("span", { class: "soft" }, " + − 0 ← → on the keyboard, Ctrl and the wheel; a bar opens its step"));
  addEventListener("resize", fill);
  const notes = data.notes.map((note) => element("p", { class: "soft note" }, note));
  return [element("h2", {}, "Steps in time"), ...notes, bar, place];
}

// From a few steps before the first that nobody came out of, or before the end.
function last() {
  const opened = data.lanes.flatMap((lane) => lane.steps.begin.filter((_, at) => lane.steps.flags[at] & OPEN));
  const latest = Math.max(0, ...data.lanes.map((lane) => lane.steps.begin[count(lane) - 1] ?? 0));
  const until = opened.length ? Math.min(...opened) : latest;
  const width = Math.max((whole[1] - until) * 1.5, whole[1] / 50);
  return [Math.max(0, whole[1] - width), whole[1]];
}

function picture(width, fill, show) {
  const shown = rows();
  const height = (shown.length + 1) * ROW + 8;
  const across = (time) => LABEL + ((time - seen[0]) / (seen[1] - seen[0])) * (width - LABEL - 6);
  const svg = drawn("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img" }, ...ticks(width, across, height));
  const finest = Math.max(1, (shown.length * (width - LABEL)) / MOST_BARS);
  shown.forEach((row, at) => {
    const y = (at + 1) * ROW;
    svg.append(label(row, y, fill), ...bars(row.lane, y, across, width, finest, show));
  });
  return svg;
}

function label(row, y, fill) {
  const foldable = row.group && row.group.lanes.length > 1;
  const mark = foldable ? (row.group.open ? "▾ " : "▸ ") : row.group ? "" : "   ";
  const text = drawn("text", { x: row.group ? 0 : 14, y: y + 12, class: `label ${row.lane.role}` },
    `${mark}${row.name.length > 24 ? `${row.name.slice(0, 23)}…` : row.name}`);
  text.append(drawn("title", {}, `${row.name} ${said(row.lane.told)}`));
  if (foldable) {
    text.classList.add("fold");
    text.addEventListener("click", () => { row.group.open = !row.group.open; fill(); });
  }
  return text;
}

function ticks(width, across, height) {
  const made = [];
  const raw = (seen[1] - seen[0]) / Math.max(2, (width - LABEL) / 110);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= raw);
  for (let time = Math.ceil(seen[0] / step) * step; time < seen[1]; time += step) {
    const x = across(time);
    made.push(drawn("line", { x1: x, x2: x, y1: 14, y2: height, class: "tick" }),
      drawn("text", { x: x + 2, y: 11, class: "axis" }, duration(time)));
  }
  return made;
}

const duration = (us) => us >= 1e6 ? `${+(us / 1e6).toFixed(3)} s` : us >= 1e3 ? `${+(us / 1e3).toFixed(3)} ms` : `${Math.round(us)} µs`;

function bars(lane, y, across, width, finest, show) {
  const made = [];
  let right = -1;
  for (let at = 0; at < count(lane); at += 1) {
    const flags = lane.steps.flags[at];
    const begin = lane.steps.begin[at];
    const end = flags & OPEN ? whole[1] : begin + lane.steps.took[at];
    if (end < seen[0] || begin > seen[1]) continue;
    const from = Math.max(across(begin), LABEL);
    const to = Math.min(Math.max(across(end), from + 1.5), width);
    if (to < right + finest && !(flags & (OPEN | FAULT | STRUCK | RAISED))) continue; // hidden behind another
    right = to;
    made.push(barOf(lane, at, from, to, y, show));
  }
  const left = !lane.steps.flags.some((flags, at) => flags & FAULT || (flags & OPEN && at === count(lane) - 1));
  return lane.role === "culprit" && left ? [...made, leaving(lane, y, across)] : made;
}

function barOf(lane, at, from, to, y, show) {
  const flags = lane.steps.flags[at];
  const waits = flags & OPEN && lane.waits.length;
  const names = ["bar", said(lane.steps.kind[at]), ...[[FAULT, "fault"], [OPEN, "open"], [STRUCK, "struck"], [RAISED, "raised"]]
    .filter(([flag]) => flags & flag).map(([, name]) => name)];
  const rect = drawn("rect", { x: from, y, width: Math.max(1, to - from), height: BAR, rx: 1, class: names.join(" ") });
  if (waits && !(flags & FAULT)) rect.setAttribute("style", `fill: ${hues(lane.waits[0])}`);
  rect.append(drawn("title", {}, tale(lane, at)));
  rect.addEventListener("click", () => show(lane, at));
  if (!waits || to - from < 90) return rect;
  const text = `waits for ${ranksIn(lane.waits)}`, room = Math.floor((to - from - 8) / LETTER);
  const fitting = text.length > room ? `${text.slice(0, room - 1)}…` : text;
  return drawn("g", {}, rect, drawn("text", { x: from + 4, y: y + 12, class: "inside" }, fitting));
}

function leaving(lane, y, across) {
  const at = count(lane) - 1;
  const x = Math.max(across(at < 0 ? 0 : lane.steps.begin[at] + Math.max(0, lane.steps.took[at])), LABEL) + 3;
  const mark = drawn("text", { x, y: y + 12, class: "culprit fault" }, `✕ ${lane.status}`);
  mark.append(drawn("title", {}, said(lane.told)));
  return mark;
}

function tale(lane, at) {
  const flags = lane.steps.flags[at];
  const ended = data.issued ? "was over when this was written" : `took ${duration(lane.steps.took[at])}`;
  const took = flags & OPEN ? (data.ended ? "never came out of it" : "had not come out of it") : ended;
  const waits = flags & OPEN && lane.waits.length ? `, waits for ${ranksIn(lane.waits)}` : "";
  const struck = flags & STRUCK ? ", struck by a fault" : "";
  const site = said(lane.steps.site[at]);
  return `rank ${lane.rank}: ${said(lane.steps.text[at])}${site ? `, at ${site}` : ""}; after ${duration(lane.steps.begin[at])}, ${took}${waits}${struck}`;
}

// ------------------------------------------------------------------------------------------------ who waits for whom

function waiting() {
  const waits = groups.filter((group) => group.lanes[0].waits.length);
  if (!waits.length) return [];
  const lines = waits.map((group) => element("li", {},
    `${ranksIn(group.lanes.map((lane) => lane.rank))} wait${group.lanes.length === 1 ? "s" : ""} for ${ranksIn(group.lanes[0].waits)}`));
  return [element("h2", {}, "Who waits for whom"), graph(waits), element("ul", { class: "waits" }, ...lines)];
}

// A node for each group of ranks that are alike, and for each that are waited for.
function graph(waits) {
  const nodes = groups.filter((group) => waits.includes(group) || waits.some((other) =>
    group.lanes.some((lane) => other.lanes[0].waits.includes(lane.rank)))).slice(0, MOST_NODES);
  const size = Math.min(560, 130 + nodes.length * 36), middle = size / 2, radius = middle - 34;
  const spot = (at) => nodes.length === 1 ? [middle, middle] : [
    middle + radius * Math.sin((2 * Math.PI * at) / nodes.length), middle - radius * Math.cos((2 * Math.PI * at) / nodes.length)];
  const svg = drawn("svg", { width: size, height: size, class: "graph", role: "img", "aria-label": "who waits for whom" },
    drawn("defs", {}, drawn("marker", { id: "arrow", viewBox: "0 0 10 10", refX: 9, refY: 5, markerWidth: 7,
      markerHeight: 7, orient: "auto-start-reverse" }, drawn("path", { d: "M0 0 L10 5 L0 10 z", class: "head" }))));
  nodes.forEach((from, at) => nodes.forEach((to, other) => {
    if (at === other || !from.lanes[0].waits.some((rank) => to.lanes.some((lane) => lane.rank === rank))) return;
    const [x1, y1] = spot(at), [x2, y2] = spot(other);
    const far = Math.hypot(x2 - x1, y2 - y1), cut = 30 / far;
    svg.append(drawn("line", { x1: x1 + (x2 - x1) * cut, y1: y1 + (y2 - y1) * cut, x2: x2 - (x2 - x1) * cut,
      y2: y2 - (y2 - y1) * cut, class: "wait", "marker-end": "url(#arrow)" }));
  }));
  nodes.forEach((group, at) => {
    const [x, y] = spot(at);
    const name = ranksIn(group.lanes.map((lane) => lane.rank)).replace(/^ranks? /, "");
    svg.append(drawn("circle", { cx: x, cy: y, r: 24, class: `node ${group.lanes[0].role}` }),
      drawn("text", { x, y: y + 4, class: "node" }, name.length > 7 ? `${name.slice(0, 6)}…` : name));
  });
  return svg;
}

// ------------------------------------------------------------------------------------------------ ranks and stacks

const PLURAL = { was: "were", is: "are", waits: "wait" };

function doing(group) {
  const told = said(group.lanes[0].told);
  const [verb] = told.split(" ", 1);
  return group.lanes.length > 1 && PLURAL[verb] ? PLURAL[verb] + told.slice(verb.length) : told;
}

function states() {
  return [element("h2", {}, data.ended ? "How ranks ended" : "Where ranks were seen last"), element("ul", {}, ...groups.map((group) => element("li", { class: group.lanes[0].role },
    `${ranksIn(group.lanes.map((lane) => lane.rank))} ${doing(group)}`)))];
}

function stacks() {
  if (!data.stacks.length) return [];
  return [element("h2", {}, "Where they were"), ...data.stacks.map((stack, at) => {
    const attributes = at === 0 ? { class: "case", open: "" } : { class: "case" };
    return element("details", attributes, element("summary", {}, ranksIn(stack.ranks)), element("pre", {}, stack.text));
  })];
}

function main() {
  document.getElementById("page").append(head(), ...words());
  const detail = element("p", { id: "step", class: "soft" }, "");
  const show = (lane, at) => { detail.textContent = tale(lane, at); };
  document.getElementById("page").append(
    ...sideBySide(), ...timeline(show), detail, ...waiting(), ...states(), ...stacks(), ...repeat());
}

main();
dispatchEvent(new Event("resize")); // draws the steps, as wide as there is room for them
for (const each of document.querySelectorAll(".scroll")) each.scrollLeft = each.scrollWidth; // where it went wrong
