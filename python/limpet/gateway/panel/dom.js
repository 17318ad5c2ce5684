// SPDX-License-Identifier: Apache-2.0
//
// Updating in place. The page gets a whole new state every second; touching only what changed keeps
// focus, selection and a screen reader's place where they are.

export const byId = (id) => document.getElementById(id);

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function setAttribute(node, name, value) {
  if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

// The elements in `root` that say what they show, by that name.
export function partsOf(root) {
  return Object.fromEntries(
    [...root.querySelectorAll("[data-is]")].map((part) => [part.dataset.is, part]));
}

// A copy of a template's elements, and its parts.
export function stamp(templateId) {
  const copy = byId(templateId).content.cloneNode(true);
  return { elements: [...copy.children], parts: partsOf(copy) };
}

// Puts `wanted` into `parent` in this order. What already stands right is not moved: moving an
// element takes the focus from it.
export function arrange(parent, wanted) {
  const keep = new Set(wanted);
  for (const child of [...parent.children]) if (!keep.has(child)) child.remove();
  wanted.forEach((element, place) => {
    if (parent.children[place] !== element) parent.insertBefore(element, parent.children[place]);
  });
}

// Makes `button` open and close `detail`; `opened(bool)` is told.
export function discloses(button, detail, opened = () => {}) {
  button.addEventListener("click", () => {
    detail.hidden = !detail.hidden;
    button.setAttribute("aria-expanded", String(!detail.hidden));
    opened(!detail.hidden);
  });
}
