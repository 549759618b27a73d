// Before anything is painted, so that a dark page does not flash up light. A page opened from a file may be refused its storage.
try {
  const kept = localStorage.getItem("seatrial-theme");
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
} catch {
  // The system's own theme then.
}
