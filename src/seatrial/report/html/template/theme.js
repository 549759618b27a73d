// Runs before the first paint, so that a dark page does not flash light. Browsers may refuse storage to a page opened from a file.
try {
  const stored = localStorage.getItem("seatrial-theme");
  if (stored === "light" || stored === "dark") document.documentElement.dataset.theme = stored;
} catch {
  // The system's theme is used.
}
