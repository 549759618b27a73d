// Text of charts that stands out over the drawing's own edges, and so is cut off.
() => {
  const found = [];
  for (const svg of document.querySelectorAll("figure.chart svg")) {
    const frame = svg.getBoundingClientRect();
    for (const text of svg.querySelectorAll("text")) {
      const box = text.getBoundingClientRect();
      if (!box.width || !text.checkVisibility({ opacityProperty: true })) continue;
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1) {
        found.push(`${svg.closest("figure").id}: ${text.textContent.slice(0, 40)}`);
      }
    }
  }
  return found;
}
