// Where everything stands that one must come to with the Tab key.
() => {
  const all = [...document.querySelectorAll("*")];
  const wanted = "a[href], button, input, select, textarea, summary, [tabindex]";
  return [...document.querySelectorAll(wanted)]
    .filter((one) => !one.disabled && one.tabIndex >= 0 && one.checkVisibility({ visibilityProperty: true }) && !one.closest("[inert]"))
    .map((one) => ({ at: all.indexOf(one), what: `${one.tagName.toLowerCase()}#${one.id} ${one.textContent.trim().slice(0, 30)}`, tabindex: one.tabIndex }));
}
