// What a page does beyond HTML: ages that count, parts that are replaced, a log that grows.
// Without this script every page works; it is then as old as its last load.
"use strict";
(() => {
  const body = document.body;
  const suffix = document.title.slice(document.title.lastIndexOf(" - "));
  let skew = Number(body.dataset.now) - Date.now() / 1000;
  const now = () => Date.now() / 1000 + skew;

  // Durations as the server writes them: 0.8 s, 41 s, 4 m 12 s, 3 h 12 m, 2 d 4 h.
  function span(seconds) {
    if (seconds < 9.95) return `${Math.max(seconds, 0).toFixed(1)} s`;
    const whole = Math.floor(seconds);
    for (const [size, unit, smaller, name] of [[86400, "d", 3600, "h"], [3600, "h", 60, "m"], [60, "m", 1, "s"]]) {
      if (whole >= size) {
        const rest = Math.floor((whole % size) / smaller);
        return rest ? `${Math.floor(whole / size)} ${unit} ${rest} ${name}` : `${Math.floor(whole / size)} ${unit}`;
      }
    }
    return `${whole} s`;
  }

  function tick() {
    for (const time of document.querySelectorAll("time[data-at]")) {
      const text = span(now() - Number(time.dataset.at)) + (time.dataset.suffix || "");
      if (time.textContent !== text) time.textContent = text;
    }
  }
  setInterval(tick, 1000);

  for (const one of document.querySelectorAll(".needs-js")) one.hidden = false;

  // A click on a command or an id copies it.
  document.addEventListener("click", (event) => {
    const command = event.target.closest("[data-copy]");
    if (!command || !navigator.clipboard || String(getSelection())) return;
    navigator.clipboard.writeText(command.dataset.copy).then(() => {
      command.classList.add("copied");
      setTimeout(() => command.classList.remove("copied"), 1000);
    });
  });

  // A form is sent once, however often its button is pressed.
  addEventListener("submit", (event) => {
    if (event.target.method !== "post") return;
    if (event.target.dataset.sent) event.preventDefault();
    event.target.dataset.sent = "1";
  });
  addEventListener("pageshow", () => {
    for (const form of document.querySelectorAll("form[data-sent]")) delete form.dataset.sent;
  });

  // The token of a login comes behind the # of the address, which no server logs.
  const login = document.getElementById("login");
  if (login && location.hash.length > 1) {
    document.getElementById("token").value = decodeURIComponent(location.hash.slice(1));
    history.replaceState(null, "", location.pathname + location.search);
    login.submit();
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
    if (event.key === "/") {
      event.preventDefault();
      document.getElementById("q")?.focus();
    } else if (event.key === ".") {
      toggle();
    } else if (event.key === "?") {
      document.getElementById("help")?.click();
    }
  });

  // The log.
  const log = document.getElementById("log"), lines = document.getElementById("lines");
  const MOST = 5000;
  const follow = document.getElementById("follow");
  const isAtEnd = () => log.scrollHeight - log.scrollTop - log.clientHeight < 40;
  if (log) {
    log.scrollTop = log.scrollHeight;
    log.addEventListener("scroll", () => { follow.checked = isAtEnd(); });
    follow.addEventListener("change", () => { if (follow.checked) log.scrollTop = log.scrollHeight; });
  }
  // The highest number of a line of each attempt: between it and the next one, some may be gone from Redis.
  const reached = new Map();
  const numberOf = (line) => Number(line.querySelector(".ln").textContent.replaceAll(",", ""));
  function reach(line) {
    const of = line.dataset.attempt, number = numberOf(line);
    reached.set(of, Math.max(number, reached.get(of) || 0));
  }
  for (const line of document.querySelectorAll("#lines li[data-attempt]")) reach(line);
  function gapBefore(line) {
    const last = reached.get(line.dataset.attempt) || 0, number = numberOf(line);
    if (number <= last + 1 || line.dataset.stream === "blueque") return;
    const gap = document.createElement("li");
    gap.className = "gap";
    gap.textContent = `Lines ${(last + 1).toLocaleString("en")} to ${(number - 1).toLocaleString("en")} are no longer in Redis.`;
    lines.append(gap);
  }
  function append(html) {
    if (!lines) return;
    const made = document.createElement("template");
    made.innerHTML = html;
    const count = document.getElementById("count");
    const stream = log.dataset.stream, word = new URLSearchParams(location.search).get("grep");
    for (const line of made.content.children) {
      if (document.getElementById(line.id)) continue;
      if (count && line.dataset.attempt === log.dataset.attempt) count.textContent = line.querySelector(".ln").textContent;
      if (new URLSearchParams(location.search).get("attempt") && line.dataset.attempt !== log.dataset.attempt) continue;
      if (stream && line.dataset.stream !== stream && line.dataset.stream !== "blueque") continue;
      if (word && !line.textContent.toLowerCase().includes(word.toLowerCase())) continue;
      if (!stream && !word) gapBefore(line);
      lines.append(document.importNode(line, true));
      reach(line);
    }
    log.querySelector(".none")?.remove();
    while (lines.children.length > MOST) lines.firstElementChild.remove();
    if (follow.checked) log.scrollTop = log.scrollHeight;
  }

  // What changes: the page asks for its parts once a second, less often while the server is away, and not while it is hidden.
  const PACE = 1000, SLOWEST = 5000, PATIENCE = 10000;
  const sign = document.getElementById("live"), trouble = document.getElementById("trouble");
  const shown = {};  // the parts as they came last
  let entry = log?.dataset.entry || "", tag = "", isPaused = false, isAsking = false;
  let wait = PACE, timer = 0, right = Number(body.dataset.now);  // right: when the page was true
  function say(word, title) {
    if (!sign) return;
    sign.hidden = false;
    sign.textContent = word;
    sign.title = title || "";
    sign.className = `live ${word === "live" ? "" : "off"}`;
  }
  // What is wrong, and how old the page is, by the clock of the server.
  function complain(text) {
    const at = document.createElement("time");
    at.dataset.at = right;
    at.dataset.suffix = " ago";
    trouble.replaceChildren(`${text} This page shows what was true `, at, ".");
    trouble.hidden = false;
    body.classList.add("stale");
    tick();
  }
  // While rows of a list are ticked, they keep their places and their ticks, and new ones wait for a click.
  const held = document.getElementById("held");
  const isTicked = (element) => element.querySelector(".tickbox :checked") !== null;
  let newest = "";
  function hold(old, made) {
    const fresh = new Map([...made.querySelectorAll("tbody tr")].map((row) => [row.id, row]));
    const kept = [...old.querySelectorAll("tbody tr")].filter((row) => fresh.has(row.id) || isTicked(row));
    made.querySelector("tbody")?.replaceChildren(...kept.map((row) => fresh.get(row.id) || row.cloneNode(true)));
    const more = [...fresh.keys()].filter((id) => !old.querySelector(`#${CSS.escape(id)}`)).length;
    if (!held) return;
    held.hidden = !more;
    held.textContent = `${more} more`;
  }
  function release() {
    if (held) held.hidden = true;
    if (newest) replace("rows", newest, false);
  }
  held?.addEventListener("click", release);
  document.getElementById("all")?.addEventListener("click", () => {
    const boxes = [...document.querySelectorAll(".tickbox input")];
    const isTicking = boxes.some((box) => !box.checked);
    for (const box of boxes) box.checked = isTicking;
    if (!isTicking) release();
  });
  document.addEventListener("change", (event) => {
    if (event.target.closest(".tickbox") && !isTicked(document)) release();
  });
  function replace(id, html, holds = true) {
    const old = document.getElementById(id);
    if (!old) return;
    const made = document.createElement(old.tagName);
    for (const attribute of old.attributes) made.setAttribute(attribute.name, attribute.value);
    made.innerHTML = html;
    if (id === "rows") newest = html;
    if (holds && isTicked(old)) hold(old, made);
    Idiomorph.morph(old, made, { ignoreActiveValue: true, callbacks: { beforeAttributeUpdated: (name) => name !== "checked" } });
  }
  function update(data) {
    skew = data.now - Date.now() / 1000;
    for (const [id, html] of Object.entries(data.parts)) {
      if (shown[id] !== html) replace(id, shown[id] = html);
    }
    append(data.html);
    entry = data.entry;
    const title = document.querySelector("[data-title]");
    if (title) document.title = title.dataset.title + suffix;
    tick();
  }
  async function ask() {
    clearTimeout(timer);
    if (!body.dataset.live || isPaused || document.hidden || isAsking) return;
    isAsking = true;
    let answer = null, data = null;
    try {
      const headers = { "Blueque-Parts": entry, ...(tag && { "If-None-Match": tag }) };
      answer = await fetch(location.href, { headers, signal: AbortSignal.timeout(PATIENCE) });
      if (answer.headers.get("Content-Type")?.startsWith("application/json")) data = await answer.json();
    } catch { answer = null; }
    isAsking = false;
    if (isPaused) return;
    if (answer?.status === 304 || (answer?.ok && data)) {
      wait = PACE;
      try {
        if (data) {
          update(data);
          tag = answer.headers.get("ETag");
        }
      } catch (error) {
        tag = "";  // the next answer has all of it again
        console.warn(error);
      }
      right = now();
      trouble.hidden = true;
      body.classList.remove("stale");
      say("live");
    } else {
      wait = answer?.status === 503 ? PACE : Math.min(2 * wait, SLOWEST);  // 503: it is Redis that is away
      fail(answer, data);
    }
    timer = setTimeout(ask, wait);
  }
  function fail(answer, data) {
    if (answer?.status === 401) {
      const link = document.createElement("a");
      link.href = location.href;  // the server leads from there to the login, and back
      link.textContent = "Log in";
      complain("The server was restarted, or the login has expired.");
      trouble.append(" ", link, " to continue.");
      say("logged out");
    } else {
      complain(data?.text || "The server of this page does not answer.");
      say(data ? "waiting" : "reconnecting");
    }
  }
  function toggle() {
    isPaused = !isPaused;
    if (isPaused) say("paused");
    else ask();
  }
  document.addEventListener("visibilitychange", ask);
  addEventListener("pageshow", ask);
  sign?.addEventListener("click", toggle);
})();
