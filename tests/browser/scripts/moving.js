// What moves by itself, or glides instead of being there.
() => {
  const lasts = (text) => text.split(",").some((part) => parseFloat(part) > 0.01);
  return [...document.querySelectorAll("*")]
    .filter((one) => {
      const style = getComputedStyle(one);
      const animated = style.animationName !== "none" && lasts(style.animationDuration);
      return lasts(style.transitionDuration) || animated || style.scrollBehavior === "smooth";
    })
    .map((one) => `${one.tagName}#${one.id}`);
}
