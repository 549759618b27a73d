// What has the focus: where it stands in the page, what it is, and whether one can see that it has it.
() => {
  const element = document.activeElement;
  if (!element || element === document.body) return null;
  const all = [...document.querySelectorAll("*")];
  const style = getComputedStyle(element);
  const ring = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0 && !/, 0\)$/.test(style.outlineColor);
  const box = element.getBoundingClientRect();
  return {
    at: all.indexOf(element),
    tag: element.tagName.toLowerCase(),
    id: element.id,
    section: element.closest("section")?.id ?? element.closest("nav, header, footer, main")?.tagName.toLowerCase() ?? "",
    text: (element.getAttribute("aria-label") ?? element.textContent ?? "").trim().slice(0, 40),
    chart: element.dataset.chart ?? "",
    seen: ring || style.boxShadow !== "none",
    within: box.right > 0 && box.bottom > 0 && box.left < innerWidth && box.top < innerHeight && box.width > 0,
  };
}
