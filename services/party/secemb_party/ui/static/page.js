// Renews the live parts: htmx asks every few seconds, and at once when the server tells of an event.
(() => {
  const offline = document.getElementById("offline"), announcer = document.getElementById("announcer");
  const show = (lost) => { if (offline.hidden === lost) offline.hidden = !lost; };

  // Said aloud by screen readers, and only when it has changed.
  const announce = () => {
    const words = document.querySelector("[data-announce]")?.dataset.announce || "";
    if (announcer.textContent !== words) announcer.textContent = words;
  };

  document.body.addEventListener("htmx:sendError", () => show(true));
  document.body.addEventListener("htmx:timeout", () => show(true));
  document.body.addEventListener("htmx:responseError", () => show(true));
  document.body.addEventListener("htmx:afterSwap", () => { show(false); announce(); });

  const live = document.querySelector("[data-events]");
  if (live) {
    const stream = new EventSource(live.dataset.events);
    const refresh = () => htmx.trigger(live, "refresh");
    for (const kind of ["round", "result", "rollback"]) stream.addEventListener(kind, refresh);
    addEventListener("pagehide", () => stream.close());
  }
  announce();
})();
