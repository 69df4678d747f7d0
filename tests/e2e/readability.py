"""What a script in the browser can tell about whether everybody can read a page."""

# Headings that skip a level, controls without a name, pictures without a text, landmarks that are missing or twice,
# boxes that scroll sideways and do not show it, or only to a mouse.
FAULTS = """() => {
  const faults = [], all = (what) => [...document.querySelectorAll(what)];
  const levels = all("h1, h2, h3, h4").filter((h) => h.offsetParent).map((h) => Number(h.tagName[1]));
  levels.forEach((level, at) => { if (level > (at ? levels[at - 1] + 1 : 1)) faults.push("heading " + level); });
  if (levels.filter((level) => level === 1).length !== 1) faults.push("not one h1");
  for (const one of ["header", "main", "footer"]) if (all("body > " + one).length !== 1) faults.push("landmark " + one);
  for (const one of all("input:not([type=hidden]), select")) if (!one.labels.length) faults.push("label " + one.name);
  for (const one of all("button, a[href]")) if (!one.textContent.trim()) faults.push("empty " + one.outerHTML);
  for (const one of all("img:not([alt])")) faults.push("image");
  for (const one of all("th:not([scope])")) if (!one.closest(".u-legend")) faults.push("th " + one.textContent);
  const inline = all("[style], style, script:not([src])").filter((one) => !one.closest(".chart"));
  for (const one of inline) faults.push("inline " + one.tagName);
  const wide = (one) => one.scrollWidth > one.clientWidth && /auto|scroll/.test(getComputedStyle(one).overflowX);
  for (const one of all("body *").filter(wide)) {
    const { backgroundImage: image, backgroundAttachment: attached } = getComputedStyle(one);
    if (one.tabIndex < 0 || !one.role || !one.ariaLabel) faults.push("scrolls, not by keyboard: " + one.className);
    if (!/gradient/.test(image) || !/local.*scroll/.test(attached)) faults.push("scrolls, no cue: " + one.className);
  }
  if (new Set(all("[id]").map((one) => one.id)).size !== all("[id]").length) faults.push("an id twice");
  if (document.documentElement.scrollWidth > innerWidth) faults.push("wider than the screen");
  return faults;
}"""

# Text that stands out too little from what is behind it, by the measure of the W3C: 4.5, and 3 where it is large.
FAINT = """() => {
  const read = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const linear = (c) => (c <= 10.3 ? c / 3294.6 : ((c / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const behind = (one) => {
    for (; one; one = one.parentElement) {
      const colour = read(getComputedStyle(one).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const says = (one) => [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
  const seen = (one) => one.checkVisibility() && !one.closest(".unseen, .skip");
  const texts = [...document.querySelectorAll("body *")].filter((one) => says(one) && seen(one));
  return texts.map((one) => {
    const style = getComputedStyle(one), pair = [light(read(style.color)), light(behind(one))].sort((a, b) => a - b);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.6 && Number(style.fontWeight) >= 700);
    const ratio = (pair[1] + 0.05) / (pair[0] + 0.05);
    return ratio < (large ? 3 : 4.5) ? ratio.toFixed(2) + " " + one.outerHTML.slice(0, 80) : "";
  }).filter(Boolean);
}"""
