// Copy buttons on blocks of code, and sections of the sidebar that open and close. Without scripts both are plain text.
"use strict";

function addCopyButton(block) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(block.querySelector("pre").innerText.trimEnd() + "\n");
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  block.append(button);
}

function makeSection(caption) {
  const list = caption.nextElementSibling;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "section";
  button.textContent = caption.textContent;
  const show = (open) => {
    list.hidden = !open;
    button.setAttribute("aria-expanded", String(open));
  };
  button.addEventListener("click", () => show(list.hidden));
  caption.replaceChildren(button);
  const isFirst = caption === document.querySelector(".sidebar-tree p.caption");
  show(isFirst || list.querySelector(".current-page") !== null);
}

document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll("div.highlight").forEach(addCopyButton);
  document.querySelectorAll(".sidebar-tree p.caption").forEach(makeSection);
});
