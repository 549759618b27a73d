// What a screen reader stumbles over: fields without a name, pictures without words, headings that skip a level, a list of sentences.
() => {
  const found = [];
  const name = (element) =>
    (element.getAttribute("aria-label") ?? "").trim() ||
    (element.getAttribute("aria-labelledby") ?? "").split(" ").map((id) => document.getElementById(id)?.textContent ?? "").join("").trim() ||
    [...(element.labels ?? [])].map((label) => label.textContent).join("").trim();
  for (const field of document.querySelectorAll("input, select, textarea")) if (!name(field)) found.push(`no label: ${field.outerHTML.slice(0, 80)}`);
  for (const button of document.querySelectorAll("button, a[href], summary")) {
    if (!name(button) && !button.textContent.trim()) found.push(`no words: ${button.outerHTML.slice(0, 80)}`);
  }
  for (const image of document.querySelectorAll("img")) if (!image.hasAttribute("alt")) found.push(`no alt: ${image.outerHTML.slice(0, 80)}`);
  for (const figure of document.querySelectorAll("figure.chart")) {
    if (!name(figure) && !figure.querySelector("figcaption")?.textContent.trim()) found.push(`no caption: ${figure.id}`);
  }
  let before = 0;
  for (const heading of document.querySelectorAll("h1, h2, h3, h4, h5, h6")) {
    const level = +heading.tagName[1];
    if (level > before + 1) found.push(`h${level} after h${before}: ${heading.textContent.trim().slice(0, 40)}`);
    before = level;
  }
  const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
  for (const id of new Set(ids.filter((one, at) => ids.indexOf(one) !== at))) found.push(`id twice: ${id}`);
  for (const link of document.querySelectorAll("a[href^='#']")) {
    if (!document.getElementById(decodeURIComponent(link.hash.slice(1)))) found.push(`link to nothing: ${link.getAttribute("href")}`);
  }
  for (const part of document.querySelectorAll("[aria-labelledby], [aria-describedby], [aria-controls]")) {
    for (const key of ["aria-labelledby", "aria-describedby", "aria-controls"]) {
      for (const id of (part.getAttribute(key) ?? "").split(" ").filter(Boolean)) if (!document.getElementById(id)) found.push(`${key} of nothing: ${id}`);
    }
  }
  for (const table of document.querySelectorAll("table")) {
    if (!table.querySelector("th")) found.push(`table without headings: ${table.outerHTML.slice(0, 60)}`);
  }
  return found;
}
