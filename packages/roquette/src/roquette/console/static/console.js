// What a page does beyond being a page: refresh, find, copy, keys, the chart's reading, the theme.
// Everything works without it, by links and forms. No eval, no inline handler, no global name.
"use strict";
(() => {
  const $ = (query, from = document) => from.querySelector(query);
  const body = document.body, base = body.dataset.base;
  let mark = "", paused = false, timer = 0, failures = 0;

  const tail = $("[data-stream]");

  // --- refresh: the view's part is asked for again and laid over what is there

  const button = $("[data-pause]");
  const view = () => $("#view");
  const period = () => Number(view().dataset.live || 0) * 1000;

  function state(kind, text) {
    const live = button.parentElement;
    if (live.dataset.state !== kind) live.dataset.state = kind;
    if (button.textContent !== text) button.textContent = text;
  }

  function later() {
    clearTimeout(timer);
    if (!period()) return tail || state("still", "Still");
    if (paused) return state("paused", "Paused");
    timer = setTimeout(refresh, Math.min(30_000, period() * 2 ** Math.min(failures, 4)));
  }

  const busy = () => document.hidden || !getSelection().isCollapsed || $("dialog[open]");

  async function refresh() {
    if (!busy()) {
      try {
        const answer = await fetch(location.href, { headers: { "roquette-live": "1", "if-none-match": mark }, signal: AbortSignal.timeout(20_000) });
        if (answer.status >= 500) throw new Error(reason(await answer.text()));
        if (answer.status !== 304) morph(await answer.text());
        else $(".stale")?.remove();
        mark = answer.headers.get("etag") || "";
        failures = 0;
        state("on", "Live");
      } catch (error) {
        failures++;
        stale(error.message);
      }
    }
    later();
  }

  // What was seen stays, dimmed, under a word about why it is not newer.
  const reason = (html) => new DOMParser().parseFromString(html, "text/html").querySelector(".reason")?.textContent || "the console failed";
  let seen = Date.now();
  function stale(words) {
    state("lost", "No answer");
    let note = $(".stale");
    if (!note) {
      note = Object.assign(document.createElement("div"), { className: "stale" });
      note.setAttribute("role", "alert");
      view().prepend(note);
    }
    const text = `Not newer than ${short.format(new Date(seen)).slice(0, 8)}: ${words}. It is asked again by itself.`;
    if (note.textContent !== text) note.textContent = text;
  }

  function morph(html) {
    seen = Date.now();
    Idiomorph.morph(view(), html, {
      morphStyle: "outerHTML", ignoreActiveValue: true,
      callbacks: { beforeAttributeUpdated: (name, node) => !(name === "open" && node.localName === "details") },
    });
    times(view());
  }

  button.addEventListener("click", () => { paused = !paused; paused ? later() : refresh(); });
  document.addEventListener("visibilitychange", () => { if (!document.hidden && period() && !paused) { clearTimeout(timer); refresh(); } });

  // --- times: told in UTC by the server, shown in the reader's zone

  const short = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3, hourCycle: "h23" });
  const long = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
  const units = [[1, "s", 120], [60, "min", 7200], [3600, "h", 172_800], [86_400, "d", Infinity]];
  function ago(at) {
    const s = Math.max(0, (Date.now() - at) / 1000);
    if (s < 2) return "now";
    const [unit, name] = units.find(([, , limit]) => s < limit);
    return `${Math.round(s / unit)}\u202f${name} ago`;
  }
  function times(within) {
    for (const time of within.querySelectorAll("time")) {
      if (time.dataset.ago !== undefined) {
        const text = ago(new Date(time.dateTime));
        if (time.textContent !== text) time.textContent = text;
        continue;
      }
      if (!/Z$/.test(time.textContent)) continue;
      const at = new Date(time.dateTime), today = at.toDateString() === new Date().toDateString();
      time.textContent = today ? short.format(at) : long.format(at);
    }
  }

  // --- the palette

  const dialog = $("#palette"), input = $("input", dialog), list = $("#found");
  let asked = 0;

  async function look() {
    const turn = ++asked;
    const answer = await fetch(`${base}find?q=${encodeURIComponent(input.value)}`).catch(() => null);
    if (!answer?.ok || turn !== asked) return;
    list.innerHTML = await answer.text();
    choose(0);
  }

  function choose(at) {
    const items = [...list.querySelectorAll("[role=option]")];
    if (!items.length) return input.removeAttribute("aria-activedescendant");
    const to = (at + items.length) % items.length;
    items.forEach((item, i) => item.setAttribute("aria-selected", i === to));
    input.setAttribute("aria-activedescendant", items[to].id);
    items[to].scrollIntoView({ block: "nearest" });
    list.dataset.at = to;
  }

  function open() { dialog.showModal(); input.select(); look(); }
  $("[data-palette]").addEventListener("click", open);
  let wait = 0;
  input.addEventListener("input", () => { clearTimeout(wait); wait = setTimeout(look, 80); });
  dialog.addEventListener("keydown", (event) => {
    const at = Number(list.dataset.at || 0);
    if (event.key === "ArrowDown") choose(at + 1);
    else if (event.key === "ArrowUp") choose(at - 1);
    else if (event.key === "Enter") $("[aria-selected=true] a", list)?.click();
    else return;
    event.preventDefault();
  });
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });

  // --- filters that answer while one types

  for (const form of document.querySelectorAll("[data-instant]")) {
    let soon = 0;
    form.addEventListener("input", () => {
      clearTimeout(soon);
      soon = setTimeout(() => {
        const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
        history.replaceState(null, "", `${form.action}${query.size ? "?" : ""}${query}`);
        mark = "";
        refresh();
      }, 120);
    });
  }

  // --- keys

  let first = "";
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "k") { event.preventDefault(); return open(); }
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input,select,textarea,dialog")) return;
    const go = (selector) => { const to = $(selector); if (to) { event.preventDefault(); to.click(); } };
    if (first === "g") { first = ""; return go(`.side [data-key="${CSS.escape(event.key)}"]`); }
    switch (event.key) {
      case "/": event.preventDefault(); return open();
      case "g": first = "g"; setTimeout(() => (first = ""), 1000); return;
      case "h": return go("[data-hold]");
      case "p": return go("[data-pause]");
      case "c": return go(".say .copy");
      case "t": return go("[data-theme-next]");
      case "?": return $("#keys").showModal();
      case "f": event.preventDefault(); return $("[data-focus]")?.focus();
      case "[": case "]": return go(`.pager [data-key="${event.key}"]`);
    }
  });

  document.addEventListener("click", async (event) => {
    const copy = event.target.closest("[data-copy]");
    if (!copy) return;
    await navigator.clipboard.writeText(copy.dataset.copy).catch(() => {});
    copy.textContent = "Copied";
    setTimeout(() => (copy.textContent = "Copy"), 1200);
  });

  $("[data-theme-next]").addEventListener("click", () => {
    const order = ["", "dark", "light"], root = document.documentElement;
    const next = order[(order.indexOf(root.dataset.theme || "") + 1) % 3];
    next ? (root.dataset.theme = next) : delete root.dataset.theme;
    document.cookie = `theme=${next};path=/;max-age=31536000;samesite=strict`;
  });

  // --- what a chart says under the pointer

  document.addEventListener("pointermove", (event) => {
    const chart = event.target.closest?.(".chart");
    if (!chart) return;
    const { t, s } = JSON.parse(chart.dataset.points), svg = $("svg", chart), box = svg.getBoundingClientRect();
    const from = 8 / 720, to = 712 / 720, part = ((event.clientX - box.left) / box.width - from) / (to - from);
    const wanted = t[0] + part * (t[t.length - 1] - t[0]);
    let at = 0;
    t.forEach((time, i) => { if (Math.abs(time - wanted) < Math.abs(t[at] - wanted)) at = i; });
    const x = 8 + (704 * (t[at] - t[0])) / Math.max(1, t[t.length - 1] - t[0]), cursor = $(".cursor", svg);
    cursor.setAttribute("x1", x); cursor.setAttribute("x2", x);
    $(".reading", chart).textContent = `${short.format(new Date(t[at])).slice(0, 8)}  ${s.map(([name, values]) => `${name} ${values[at]}`).join("  ")}`;
  });

  // --- the live tail: rows come as events; so many are kept; held ones wait

  if (tail) {
    const kept = 400, held = [], sum = $("#tailsum"), hold = $("[data-hold]");
    let total = 0, skipped = 0, holding = false;
    const put = (html) => {
      const box = document.createElement("template");
      box.innerHTML = html;
      times(box.content);
      tail.prepend(box.content);
      while (tail.childElementCount > kept) tail.lastElementChild.remove();
    };
    const flow = () => { if (!holding && !tail.querySelector("details[open]")) held.splice(0).forEach(put); tell(); };
    const tell = () => (sum.textContent = `${total} came` + (skipped ? `, ${skipped} not shown: more than one can read` : "") + (held.length ? `, held` : ""));
    const source = new EventSource(tail.dataset.stream);
    source.addEventListener("rows", (event) => {
      const end = event.data.indexOf("\n"), [count, left] = event.data.slice(0, end).split(" ").map(Number);
      total = count; skipped += left;
      held.push(event.data.slice(end + 1));
      held.splice(0, held.length - 20);
      flow();
    });
    tail.addEventListener("toggle", () => flow(), true);
    source.addEventListener("trouble", (event) => { source.close(); sum.textContent = event.data; state("lost", "Ended"); });
    source.addEventListener("open", () => state("on", "Live"));
    source.addEventListener("error", () => state("lost", "No answer"));
    hold.addEventListener("click", () => { holding = !holding; hold.setAttribute("aria-pressed", holding); flow(); });
    addEventListener("pagehide", () => source.close());
  }

  // Where one is stays in sight in rows that scroll.
  for (const here of document.querySelectorAll(":is(.side, .tabs) [aria-current]")) here.scrollIntoView({ block: "nearest", inline: "nearest" });

  times(document);
  setInterval(() => { if (!document.hidden) times(view()); }, 1000);
  state(period() ? "on" : "still", period() ? "Live" : "Still");
  later();
})();
