// Refreshes the live parts: htmx polls every few seconds, and at once after an event from the server, which is listed.
(() => {
  const offline = document.getElementById("offline"), announcer = document.getElementById("announcer");
  const show = (lost) => { if (offline.hidden === lost) offline.hidden = !lost; };

  // For screen readers: announces the newest event and the current state after a change, at a limited rate.
  const QUIET = 5000;
  let spoken = -QUIET, timer = 0, news = "", state = null;
  const speak = () => {
    const now = document.querySelector("[data-announce]")?.dataset.announce || "";
    timer = 0;
    if (!news && now === state) return;
    announcer.textContent = [news, now].filter(Boolean).join(" ");
    [spoken, news, state] = [performance.now(), "", now];
  };
  const announce = () => { timer ||= setTimeout(speak, Math.max(0, spoken + QUIET - performance.now())); };

  document.body.addEventListener("htmx:sendError", () => show(true));
  document.body.addEventListener("htmx:timeout", () => show(true));
  document.body.addEventListener("htmx:responseError", () => show(true));
  document.body.addEventListener("htmx:afterSwap", () => { show(false); announce(); });

  const list = document.getElementById("events");
  if (list) {
    const stream = new EventSource(list.dataset.source);
    const tell = (event) => {
      list.insertAdjacentHTML("afterbegin", event.data); // a line of our own server's template
      while (list.children.length > Number(list.dataset.most)) list.lastElementChild.remove();
      news = list.firstElementChild.lastElementChild.textContent;
      announce();
      htmx.trigger("#live", "refresh");
    };
    for (const kind of list.dataset.kinds.split(" ")) stream.addEventListener(kind, tell);
    addEventListener("pagehide", () => stream.close());
    addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); }); // came back: the stream is closed
  }
  announce();
})();
