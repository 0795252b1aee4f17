// Behaviour of every page: parts are asked for again while somebody looks, and moments are shown as people say them.
"use strict";
(() => {
  const shown = new Map();  // target's id -> the text it was made from, so that the same text changes nothing
  const freshness = document.getElementById("freshness");
  let answered = Date.now();

  function say(text, isOld) {
    if (freshness && freshness.textContent !== text) freshness.textContent = text;
    if (freshness) freshness.classList.toggle("is-old", isOld);
  }

  const two = (number) => String(number).padStart(2, "0");

  function inWords(moment) {
    const then = new Date(moment), now = new Date(), apart = (now - then) / 1000;
    const clock = `${two(then.getUTCHours())}:${two(then.getUTCMinutes())} UTC`;  // as in the sentences of the service
    const date = (one) => one.toISOString().slice(0, 10), day = date(then) === date(now) ? "" : `${date(then)} `;
    const far = Math.abs(apart), unit = far < 90 ? [1, "s"] : far < 5400 ? [60, "min"] : far < 172800 ? [3600, "h"] : [86400, "d"];
    const distance = `${Math.round(far / unit[0])} ${unit[1]}`;
    return `${day}${clock} (${apart >= 0 ? `${distance} ago` : `in ${distance}`})`;
  }

  function showMoments(root) {
    for (const each of root.querySelectorAll("time[datetime]")) {
      if (!Number.isNaN(Date.parse(each.dateTime))) {
        each.title = `${each.dateTime}; here ${new Date(each.dateTime).toLocaleString()}`;
        each.textContent = inWords(each.dateTime);
      }
    }
  }

  let opened = [];

  /** Whether somebody is copying from a part, or is filling in a field there, while it would be replaced unasked. */
  function isBusy(target, config) {
    if (!isTimed(config)) return false;
    const chosen = document.getSelection();
    if (chosen && !chosen.isCollapsed && target.contains(chosen.anchorNode)) return true;
    return [...target.querySelectorAll("input, textarea, select")].some((each) => each === document.activeElement || (each.type === "text" && each.value !== each.defaultValue));
  }

  /** Whether nobody has asked for it: a poll, or a page that is looked at again. */
  const isTimed = (config) => !config.triggeringEvent || config.triggeringEvent.type === "wake";

  document.addEventListener("htmx:beforeRequest", (event) => {
    if (document.hidden && isTimed(event.detail.requestConfig)) event.preventDefault();
  });
  document.addEventListener("htmx:beforeSwap", (event) => {
    const { target, serverResponse, xhr } = event.detail;
    if (xhr.status !== 200) {
      say(xhr.status === 503 ? "This replica does not lead" : `The service answers ${xhr.status}`, true);
      return;
    }
    answered = Date.now();
    say("", false);
    if (shown.get(target.id) === serverResponse) event.detail.shouldSwap = false;
    else shown.set(target.id, serverResponse);
    if (event.detail.shouldSwap && isBusy(target, event.detail.requestConfig)) {
      event.detail.shouldSwap = false;  // the next answer will do
      shown.delete(target.id);
    }
    opened = [...target.querySelectorAll("details[open][id]")].map((each) => each.id);
  });
  document.addEventListener("htmx:afterSwap", () => {
    for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
  });
  document.addEventListener("htmx:afterSwap", (event) => showMoments(event.target));
  for (const kind of ["htmx:sendError", "htmx:timeout"]) {
    document.addEventListener(kind, () => say(`No answer for ${Math.round((Date.now() - answered) / 1000)} s`, true));
  }
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) for (const each of document.querySelectorAll("[hx-trigger*=wake]")) htmx.trigger(each, "wake");
  });
  setInterval(() => document.hidden || showMoments(document), 30000);
  showMoments(document);
})();
