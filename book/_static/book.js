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
});
