for (const box of document.querySelectorAll(".claims-matrix")) {
  const chosen = [...box.querySelectorAll("select")];
  const apply = () => box.querySelectorAll(".claims-cell").forEach(cell => {
    cell.classList.toggle("off", chosen.some(s => s.value && cell.dataset[s.dataset.field] !== s.value));
  });
  chosen.forEach(s => s.addEventListener("change", apply));
}
