// Arrow keys, page keys, Home, End, or a tap on either half; what does not fit is set smaller. Without this script, and on
// a narrow screen, all slides stand in a column.
addEventListener("load", () => {
  const narrow = matchMedia("(max-width: 600px)").matches;
  document.body.classList.toggle("live", !narrow);
  if (narrow) { // what scrolls sideways can be reached by keyboard
    for (const slide of document.querySelectorAll(".slide")) if (slide.scrollWidth > slide.clientWidth) slide.tabIndex = 0;
    return;
  }
  const slides = [...document.querySelectorAll(".slide")];
  const fit = slide => {
    for (let size = Number(slide.style.getPropertyValue("--fit") || 1);
      size > 0.4 && slide.scrollHeight > slide.clientHeight + 1; size -= 0.05)
      slide.style.setProperty("--fit", size.toFixed(2));
  };
  const go = number => {
    const place = Math.min(Math.max(number, 0), slides.length - 1);
    slides.forEach((slide, other) => slide.classList.toggle("now", other === place));
    fit(slides[place]);
    history.replaceState(null, "", "#" + (place + 1));
    document.title = document.title.replace(/( \(\d+.*)?$/, ` (${place + 1} of ${slides.length})`);
  };
  for (const slide of slides) {
    fit(slide);
    for (const part of slide.children) new ResizeObserver(() => fit(slide)).observe(part); // some are drawn later
  }
  go(Number(location.hash.slice(1) || 1) - 1);
  const now = () => slides.findIndex(slide => slide.classList.contains("now"));
  const steps = { ArrowRight: 1, ArrowDown: 1, PageDown: 1, " ": 1, ArrowLeft: -1, ArrowUp: -1, PageUp: -1, Home: -1e9, End: 1e9 };
  addEventListener("keydown", event => {
    if (!(event.key in steps) || event.target.closest("input, select, button, a, summary") || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    go(now() + steps[event.key]);
  });
  addEventListener("pointerup", event => {
    if (event.pointerType === "touch" && !event.target.closest("input, select, button, a, summary, svg"))
      go(now() + (event.clientX > innerWidth / 2 ? 1 : -1));
  });
  addEventListener("hashchange", () => go(Number(location.hash.slice(1) || 1) - 1));
});
