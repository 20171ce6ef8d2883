// Equations near the eye are typeset at once, the others a few at a time; MathJax.startup.promise is for all of them.
window.MathJax = Object.assign(window.MathJax || {}, { startup: { async pageReady() {
  const all = [...document.querySelectorAll(".math, .mathjax_process, .tex2jax_process, .output_area")]
    .filter(one => !one.parentElement.closest(".math, .mathjax_process, .tex2jax_process, .output_area"));
  const far = all.map(one => Math.abs(one.getBoundingClientRect().top - innerHeight / 2) > 1.5 * innerHeight);
  await MathJax.typesetPromise(all.filter((_, place) => !far[place]));
  for (const left = all.filter((_, place) => far[place]); left.length;) {
    await new Promise(next => setTimeout(next));
    await MathJax.typesetPromise(left.splice(0, 20));
  }
  for (let pass = 0; pass < 3; pass++) {
    const wide = [...document.querySelectorAll("article mjx-container[display]")].filter(one => one.clientWidth < one.scrollWidth);
    const sizes = wide.map(one => 99 * one.clientWidth / one.scrollWidth * (parseFloat(one.style.fontSize) || 100) / 100);
    wide.forEach((one, place) => { if (sizes[place] > 78) one.style.fontSize = `${sizes[place]}%`; });
  }
  const lines = [...document.querySelectorAll("article mjx-container:not([display])")].map(one => [one, one.closest("p, li, td, dd, figcaption")]);
  const long = lines.map(([one, line]) => [one, line ? 94 * line.clientWidth / one.offsetWidth : 100]).filter(([_, size]) => size < 94);
  long.forEach(([one, size]) => {
    if (size > 78) one.style.fontSize = `${size}%`;
    else one.classList.add("wide");
  });
  cut(document);
} } });

// An equation that is a little too wide is set smaller. What still goes on to the right, out of sight, fades there.
const CUT = "article :is(mjx-container:is([display], .wide), pre, .table-box, .pst-scrollable-table-container, .cell_output .output, .cell_output .output > div, .flt-scroll)";
const goesOn = one => one.scrollLeft + one.clientWidth < one.scrollWidth - 2;
const fade = all => all.map(goesOn).forEach((more, place) => all[place].classList.toggle("cut", more));  // measured first
const cut = place => fade([...place.querySelectorAll(CUT)]);
addEventListener("scroll", event => event.target.matches?.(CUT) && fade([event.target]), { capture: true, passive: true });
addEventListener("resize", () => cut(document));
addEventListener("load", () => setTimeout(cut, 0, document));  // to measure all of it takes time, and the page is there

// What was folded when all was measured is measured when it is seen: the theme lets keys scroll only what scrolls.
const unfolded = place => {
  cut(place);
  for (const one of place.querySelectorAll("pre, .cell_output > .output, .pst-scrollable-table-container"))
    if (one.scrollWidth > one.clientWidth || one.scrollHeight > one.clientHeight) one.tabIndex = 0;
};
addEventListener("toggle", event => unfolded(event.target), true);
addEventListener("click", event => { const box = event.target.closest?.(".admonition.toggle"); if (box) unfolded(box); });

// A page with folded code has one switch for all of it; whoever is led to something folded sees it unfolded.
document.addEventListener("DOMContentLoaded", () => {
  const folded = [...document.querySelectorAll("article details.hide")];
  const title = document.querySelector("article h1");
  if (folded.length > 3 && title) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "show-code";
    const say = () => { button.textContent = folded.every(one => one.open) ? "Hide all code" : "Show all code"; };
    button.addEventListener("click", () => {
      const open = !folded.every(one => one.open);
      folded.forEach(one => { one.open = open; });
      say();
    });
    say();
    title.after(button);
  }
  const unfold = () => {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let one = target.closest("details"); one; one = one.parentElement.closest("details")) one.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", unfold);
  unfold();
  explain();
  for (const one of document.querySelectorAll("article span.math")) {
    const [behind] = /^[.,;:!?)\]\u2019\u201d-]*/.exec(one.nextSibling?.data ?? "");
    const [before] = /[(\[\u201c]*$/.exec(one.previousSibling?.data ?? "");
    if (!behind && !before) continue;
    one.nextSibling?.deleteData?.(0, behind.length);
    one.previousSibling?.deleteData?.(one.previousSibling.length - before.length, before.length);
    const whole = Object.assign(document.createElement("span"), { className: "whole" });
    one.replaceWith(whole);
    whole.append(before, one, behind);
  }
  if (typeof Search !== "undefined") {  // in what it shows of a page formulas would be LaTeX
    const text = Search.htmlToText;
    Search.htmlToText = (page, anchor) => text(page.replace(/\\\[[^]*?\\\]|\\\([^]*?\\\)/g, "…"), anchor);
  }
  for (const arrow of document.querySelectorAll(".bd-sidebar-primary summary:not([aria-label])"))
    arrow.setAttribute("aria-label", "Pages of " + arrow.closest("li").querySelector("a").textContent.trim());
  const brand = document.querySelector(".sidebar-primary-items__start > .sidebar-primary-item");
  if (brand) { brand.setAttribute("role", "region"); brand.setAttribute("aria-label", "This book"); }
});

// What a link to the glossary means stands beside it while pointer or focus is there; Escape takes it away.
function explain() {
  const said = typeof GLOSSARY === "undefined" ? {} : GLOSSARY;
  const tip = Object.assign(document.createElement("div"), { id: "term-tip", className: "mathjax_process", hidden: true });
  tip.setAttribute("role", "tooltip");
  document.body.append(tip);
  let leaving, shown;
  const hide = () => { tip.hidden = true; };
  const leave = () => { leaving = setTimeout(hide, 200); };
  const stay = () => clearTimeout(leaving);
  const show = link => {
    stay();
    tip.textContent = said[link.hash.slice(1)];
    if (tip.textContent.includes("\\(") && window.MathJax) MathJax.typesetPromise?.([tip]);
    tip.hidden = false;
    shown = link;
    place();
  };
  const place = () => {
    const at = shown.getBoundingClientRect(), below = at.bottom + 6;
    tip.style.left = Math.max(8, Math.min(at.left, innerWidth - tip.offsetWidth - 8)) + "px";
    tip.style.top = (below + tip.offsetHeight > innerHeight ? at.top - tip.offsetHeight - 6 : below) + "px";
  };
  for (const link of document.querySelectorAll('article a[href*="#term-"]')) {
    if (!(link.hash.slice(1) in said)) continue;
    link.setAttribute("aria-describedby", tip.id);
    for (const [when, what] of [["mouseenter", show], ["focus", show], ["mouseleave", leave], ["blur", leave]])
      link.addEventListener(when, () => what(link));
  }
  tip.addEventListener("mouseenter", stay);
  tip.addEventListener("mouseleave", leave);
  // focus itself scrolls to a link that is out of sight: its tip goes along
  addEventListener("scroll", () => shown && shown === document.activeElement ? place() : hide(), { passive: true });
  addEventListener("keydown", event => { if (event.key === "Escape") hide(); });
}
