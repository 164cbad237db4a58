// The page of a drill.

const MOST_CASES = 200; // shown at once

const judgementOf = (one) => data.judgements[one.judgement];
const failed = (cases) => cases.filter((one) => !judgementOf(one).passed);
const worstFirst = (cases) => [...cases].sort((one, other) => other.judgement - one.judgement);

function head() {
  const verdict = data.ok ? "passed" : `${data.failed} failed`;
  return element("header", {},
    element("h1", {}, "rankdrill drill: ", element("span", { class: data.ok ? "good" : "bad" }, verdict)),
    element("p", { class: "soft" }, data.answers.length ? `${data.answers.length} questions, ` : "",
      `${data.cases.length} cases in ${data.elapsed} s`,
      data.complete ? "" : ", interrupted"));
}

function counts() {
  const rows = data.judgements
    .map((judgement) => [judgement, data.cases.filter((one) => judgementOf(one) === judgement).length])
    .filter(([, count]) => count)
    .map(([judgement, count]) => element("tr", {},
      element("th", { class: judgement.passed ? "good" : "bad" }, judgement.name),
      element("td", { class: "count" }, count), element("td", { class: "soft" }, judgement.means)));
  return element("table", { class: "counts" }, element("tbody", {}, ...rows));
}

// What each gather promises: a row for each promise that was asked about, what is wrong below it.
function promises() {
  const rows = new Map();
  for (const one of data.answers) {
    const key = `${one.path} ${one.promise}`;
    rows.set(key, [...(rows.get(key) ?? []), one]);
  }
  return [...rows.values()].map((asked) => {
    const wrong = asked.filter((one) => said(one.complaint));
    const verdict = !wrong.length ? "kept" : asked[0].promised ? "BROKEN" : "not promised";
    const line = element("summary", {}, element("strong",
      { class: verdict === "kept" ? "good" : verdict === "BROKEN" ? "bad" : "soft" }, verdict),
      ` ${asked[0].path}: ${asked[0].promise}, `, wrong.length ? `${wrong.length} of ` : "", `${asked.length} questions`);
    return element("details", { class: "case" }, line, ...wrong.flatMap((one) => [
      element("p", {}, said(one.name)), element("pre", {}, said(one.complaint)), element("pre", {}, said(one.repeat))]));
  });
}

function matrix(show) {
  const cells = new Map();
  for (const one of data.cases) {
    const key = `${one.path} ${one.strike}`;
    cells.set(key, [...(cells.get(key) ?? []), one]);
  }
  const columns = data.strikes.map((strike) => element("th", { scope: "col" }, element("span", {}, strike)));
  const rows = data.paths.map((path, at) => element("tr", {}, element("th", { scope: "row" }, path),
    ...data.strikes.map((strike, by) => cell(cells.get(`${at} ${by}`), `${path} · ${strike}`, show))));
  return element("div", { class: "scroll" }, element("table", {},
    element("thead", {}, element("tr", {}, element("th", {}, ""), ...columns)), element("tbody", {}, ...rows)));
}

function cell(cases, title, show) {
  if (!cases) return element("td", { class: "none", title: "does not apply" }, "·");
  const bad = failed(cases);
  const worst = judgementOf(worstFirst(cases)[0]).name;
  const button = element("button", {
    class: bad.length ? "cell failed" : "cell", type: "button", "aria-pressed": "false",
    title: `${title}: ${cases.length} cases, ${bad.length ? `${bad.length} failed, ` : ""}worst: ${worst}`,
  }, bad.length ? `${bad.length}/${cases.length}` : cases.length);
  button.addEventListener("click", () => {
    for (const other of document.querySelectorAll("button.cell")) other.setAttribute("aria-pressed", "false");
    button.setAttribute("aria-pressed", "true");
    show(title, cases);
  });
  return element("td", {}, button);
}

// A case opens at its number in the page's address, too: `#17`.
function caseOf(one) {
  const judgement = judgementOf(one);
  const opened = element("details", { class: "case", id: data.cases.indexOf(one) }, element("summary", {},
    element("strong", { class: judgement.passed ? "good" : "bad" }, judgement.name), " ",
    `${data.paths[one.path]}: ${said(one.name)}`));
  opened.addEventListener("toggle", () => {
    if (!opened.open) return;
    if (opened.children.length === 1) opened.append(...insides(one));
    history.replaceState(null, "", `#${opened.id}`);
  });
  return opened;
}

function openAddressed(show) {
  const one = data.cases[location.hash.slice(1) || -1];
  if (!one) return;
  show(`${data.paths[one.path]} · ${data.strikes[one.strike]}`,
    data.cases.filter((other) => other.path === one.path && other.strike === one.strike));
  const opened = document.getElementById(location.hash.slice(1));
  if (!opened) return;
  opened.open = true;
  opened.scrollIntoView();
}

function insides(one) {
  const ranks = one.ranks.map((line, rank) => rankOf(one, rank, said(line)));
  return [
    element("p", {}, said(one.why)),
    element("pre", {}, said(one.repeat)),
    element("div", { class: "ranks" }, ...ranks),
    ...one.evidence.map((line) => element("pre", {}, said(line))),
  ];
}

function rankOf(one, rank, line) {
  const tale = one.tales[rank];
  const parts = [element("h3", {}, `rank ${rank}`, rank === one.struck ? " (struck)" : ""), element("p", {}, line)];
  if (tale) {
    const told = [["sent", said(tale.sent)], ["came", said(tale.came)]].filter(([, text]) => text);
    parts.push(element("dl", {}, ...told.flatMap(([what, text]) => [
      element("dt", {}, what), element("dd", {}, element("code", {}, text))])));
    parts.push(element("ol", { class: "steps" }, ...tale.steps.map((step) => {
      const text = said(step);
      return element("li", text.includes("struck by fault") ? { class: "struck" } : {}, text);
    })));
  }
  return element("section", { class: "rank" }, ...parts);
}

function main() {
  const title = element("h2", {}, "");
  const list = element("div", {});
  const search = element("input", { type: "search", placeholder: "search in these cases", "aria-label": "search" });
  let shown = [];
  const fill = () => {
    const wanted = search.value.toLowerCase();
    const found = shown.filter((one) => [one.name, one.why, ...one.ranks].some((text) =>
      said(text).toLowerCase().includes(wanted)));
    list.replaceChildren(...found.slice(0, MOST_CASES).map(caseOf));
    if (found.length > MOST_CASES) list.append(element("p", { class: "soft" },
      `${found.length - MOST_CASES} more: search for what you want to see`));
  };
  const show = (name, cases) => {
    title.textContent = name;
    shown = worstFirst(cases);
    fill();
  };
  search.addEventListener("input", fill);
  const page = document.getElementById("page");
  page.replaceChildren(head());
  if (data.answers.length) page.append(element("h2", {}, "What gathers promise"), ...promises());
  if (!data.cases.length) return;
  page.append(element("h2", {}, "Gathers and what befell them"), counts(), matrix(show), title, search, list);
  show(failed(data.cases).length ? "What failed" : "All cases", failed(data.cases).length ? failed(data.cases) : data.cases);
  openAddressed(show);
}

main();
