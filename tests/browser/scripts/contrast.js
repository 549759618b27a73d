// Every visible piece of text whose contrast with what lies behind it is below `least`: WCAG 2's ratio, alpha and opacity blended in.
// For text in a chart the background is the last filled shape before it that covers its middle, and the page where there is none.
(least) => {
  const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 });
  const pen = canvas.getContext("2d", { willReadFrequently: true });

  const known = new Map();
  const rgba = (colour) => {
    if (!known.has(colour)) {
      pen.clearRect(0, 0, 1, 1);
      pen.fillStyle = colour;
      pen.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
      known.set(colour, [r, g, b, a / 255]);
    }
    return known.get(colour);
  };
  const over = (front, back) => [0, 1, 2].map((at) => front[at] * front[3] + back[at] * (1 - front[3])).concat(1);
  const luminance = ([r, g, b]) => {
    const linear = [r, g, b].map((value) => value / 255).map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const ratio = (one, other) => {
    const [light, dark] = [luminance(one), luminance(other)].sort((a, b) => b - a);
    return (light + 0.05) / (dark + 0.05);
  };
  const faded = (colour, element, stop) => {
    let alpha = colour[3];
    for (let at = element; at && at !== stop; at = at.parentElement) alpha *= parseFloat(getComputedStyle(at).opacity);
    return [colour[0], colour[1], colour[2], alpha];
  };
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const canvasColour = () => (getComputedStyle(document.documentElement).colorScheme.includes("dark") && dark ? [18, 18, 18, 1] : [255, 255, 255, 1]);
  const behind = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      if (at instanceof SVGElement && at.tagName !== "svg") continue;
      layers.push(rgba(getComputedStyle(at).backgroundColor));
      if (layers.at(-1)[3] === 1) break;
    }
    return layers.reverse().reduce((back, front) => over(front, back), canvasColour());
  };
  const shapeBehind = (text, box) => {
    const svg = text.ownerSVGElement;
    const middle = { x: box.x + box.width / 2, y: box.y + box.height / 2 };
    let found = null;
    for (const shape of svg.querySelectorAll("path, rect, circle")) {
      if (!(shape.compareDocumentPosition(text) & Node.DOCUMENT_POSITION_FOLLOWING)) break;
      const fill = getComputedStyle(shape).fill;
      if (fill === "none" || rgba(fill)[3] === 0) continue;
      const point = new DOMPoint(middle.x, middle.y).matrixTransform(shape.getScreenCTM().inverse());
      if (shape.isPointInFill(point)) found = [shape, rgba(fill)];
    }
    if (!found) return null;
    const [shape, fill] = found;
    return [fill[0], fill[1], fill[2], faded(fill, shape, svg)[3] * parseFloat(getComputedStyle(shape).fillOpacity)];
  };

  const weak = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.textContent.trim() || !element.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
    if (["SCRIPT", "STYLE", "NOSCRIPT", "title", "desc"].includes(element.tagName)) continue;
    const box = element.getBoundingClientRect();
    if (box.width < 2 || box.height < 2) continue;
    const inChart = element instanceof SVGElement;
    let back = behind(element);
    if (inChart) {
      const shape = shapeBehind(element, box);
      if (shape) back = over(shape, back);
    }
    const style = getComputedStyle(element);
    const front = faded(rgba(inChart ? style.fill : style.color), element, null);
    if (inChart) front[3] *= parseFloat(style.fillOpacity);
    const found = ratio(over(front, back), back);
    if (found < least) {
      const place = element.closest("[id]");
      weak.push(`${found.toFixed(2)} in ${place ? "#" + place.id : "body"} <${element.tagName}>: ${node.textContent.trim().slice(0, 40)} (${front.map((v) => +v.toFixed(2))} on ${back.map(Math.round)})`);
    }
  }
  return weak;
}
