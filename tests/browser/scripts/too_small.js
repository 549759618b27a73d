// What is seen of `selector` and has less than `least` pixels: the letters ("font") or the whole ("height").
([selector, what, least]) => {
  const size = (one) => (what === "font" ? parseFloat(getComputedStyle(one).fontSize) : one.getBoundingClientRect().height);
  return [...document.querySelectorAll(selector)]
    .filter((one) => one.checkVisibility({ visibilityProperty: true }) && one.textContent.trim() && size(one) < least)
    .map((one) => `${size(one)} px in #${one.closest("[id]").id}: ${one.textContent.trim().slice(0, 30)}`)
    .slice(0, 10);
}
