// What makes the page scroll sideways, or stands out over its right or left edge, though nothing around it scrolls or clips.
() => {
  const width = document.documentElement.clientWidth;
  const found = [];
  if (document.documentElement.scrollWidth > width) found.push(`the page is ${document.documentElement.scrollWidth} px wide in ${width}`);
  const held = (element) => {
    for (let at = element.parentElement; at && at !== document.body; at = at.parentElement) {
      if (getComputedStyle(at).overflowX !== "visible") return true;
    }
    return false;
  };
  for (const element of document.body.querySelectorAll("*")) {
    if (!element.checkVisibility({ visibilityProperty: true }) || element.closest("svg g")) continue;
    const box = element.getBoundingClientRect();
    // A skip link is kept out of sight until it has the focus.
    if (box.width <= 1 || box.height <= 1 || element.matches(".skip, .skip-link, [class*=skip]") || held(element)) continue;
    if (box.right > width + 1 || box.left < -1) {
      const place = element.id ? `#${element.id}` : (element.closest("[id]")?.id ?? "body");
      found.push(`${element.tagName}.${element.getAttribute("class") ?? ""} in ${place}: ${Math.round(box.left)} to ${Math.round(box.right)} of ${width}`);
    }
  }
  return found.slice(0, 20);
}
