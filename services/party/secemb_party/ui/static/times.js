// Shows the server's UTC times in the reader's time zone, including times added later, and names the zone.
(() => {
  const MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");
  const two = (number) => String(number).padStart(2, "0");
  const face = (at, now) => {
    const clock = `${two(at.getHours())}:${two(at.getMinutes())}`;
    if (at.toDateString() === now.toDateString()) return `${clock}:${two(at.getSeconds())}`;
    const day = `${at.getDate()} ${MONTHS[at.getMonth()]}`;
    return at.getFullYear() === now.getFullYear() ? `${day} ${clock}` : `${day} ${at.getFullYear()}`;
  };
  const write = () => {
    for (const time of document.querySelectorAll("time[datetime]:not([title])")) {
      const at = new Date(time.dateTime), words = time.firstChild;
      time.title = `${time.dateTime.slice(0, 19).replace("T", " ")} UTC`;
      if (time.className === "day") words.data = at.toLocaleDateString("en-GB", { day: "numeric", month: "long", year: "numeric" });
      else words.data = face(at, new Date()) + (time.children.length ? " " : "");
    }
  };
  write();
  new MutationObserver(write).observe(document.body, { childList: true, subtree: true });
  const { timeZone } = Intl.DateTimeFormat().resolvedOptions(), minutes = -new Date().getTimezoneOffset();
  const offset = `${minutes < 0 ? "−" : "+"}${two(Math.floor(Math.abs(minutes) / 60))}:${two(Math.abs(minutes) % 60)}`;
  document.getElementById("zone").textContent = minutes || timeZone !== "UTC" ? `Times are in your time zone, ${timeZone} (UTC${offset}).` : "Times are UTC.";
})();
