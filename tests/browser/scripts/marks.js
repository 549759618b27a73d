// The marks of a chart that are seen: the middle of each in its own frame, at most `most`, spread over the chart.
([chart, most]) => {
  const figure = document.getElementById(`chart-${chart}`);
  figure.scrollIntoView({ block: "center", behavior: "instant" });
  const kinds = "symbol rect line area rule arc trail".split(" ").map((kind) => `.mark-${kind}.role-mark`);
  const points = [];
  for (const group of figure.querySelectorAll(kinds.join(","))) {
    for (const mark of group.querySelectorAll("path, line, rect")) {
      const shape = mark.getBoundingClientRect();
      if (mark.checkVisibility({ opacityProperty: true }) && (shape.width || shape.height)) points.push(point(mark, shape));
    }
  }
  // The middle of a line lies on it only by chance; a point of its own does.
  function point(mark, box) {
    const kind = mark.parentElement.getAttribute("class") ?? "";
    if (/mark-(line|trail)/.test(kind) && mark.getTotalLength) {
      const on = mark.getPointAtLength(mark.getTotalLength() / 2).matrixTransform(mark.getScreenCTM());
      return { kind, x: on.x, y: on.y };
    }
    return { kind, x: box.x + box.width / 2, y: box.y + box.height / 2 };
  }
  const every = Math.max(1, Math.floor(points.length / most));
  return points.filter((_, at) => at % every === 0).slice(0, most);
}
