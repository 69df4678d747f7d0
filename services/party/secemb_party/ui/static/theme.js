// Light or dark: the system setting, unless the reader has chosen otherwise. Runs before anything is drawn.
(() => {
  const root = document.documentElement, system = matchMedia("(prefers-color-scheme: dark)");
  const read = () => { try { return localStorage.getItem("secemb-theme"); } catch { return null; } };
  const dark = () => (root.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
  const chosen = read();
  if (chosen === "dark" || chosen === "light") root.dataset.theme = chosen;
  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const name = () => { button.textContent = dark() ? "Light" : "Dark"; };
    button.hidden = false;
    button.title = "Change between light and dark";
    button.addEventListener("click", () => {
      root.dataset.theme = dark() ? "light" : "dark";
      try { localStorage.setItem("secemb-theme", root.dataset.theme); } catch { /* applies to this page only */ }
      name();
      document.dispatchEvent(new Event("secemb:theme"));
    });
    system.addEventListener("change", () => { name(); document.dispatchEvent(new Event("secemb:theme")); });
    name();
  });
})();
