// The plane by keyboard: arrow keys move a cross-hair; Enter, + and - are sent to the server by
// "keyed". Bokeh runs this once the page is there, as the body of a function of its arguments.
const inside = (root, name) => {  // elements of a class, in shadow roots too
  const found = [];
  for (const element of root.querySelectorAll("*")) {
    if (element.classList.contains(name)) found.push(element);
    if (element.shadowRoot) found.push(...inside(element.shadowRoot, name));
  }
  return found;
};
for (const button of inside(document.body, "bk-spin-btn")) button.tabIndex = -1;
for (const layer of inside(document.getElementById("times"), "bk-events")) layer.tabIndex = -1;
for (const handle of inside(document.getElementById("choose"), "noUi-handle")) {
  const title = inside(handle.getRootNode(), "bk-slider-title")[0];
  if (title) handle.setAttribute("aria-label", title.textContent.split(":")[0]);
}
const plane = inside(document.getElementById("plane"), "bk-events")[0];
const words = document.getElementById("keys"), usual = document.getElementById("usual");
plane.tabIndex = 0;
plane.setAttribute("role", "application");
plane.setAttribute("aria-label", "The plane. " + words.textContent);
let at = null, count = 0;
const show = (place) => {
  const number = (x) => Number(x.toFixed(digits())).toString();
  if (place !== null) at = place.map((x) => Number(number(x)));
  const data = place === null ? {x: [], y: [], text: []}
    : {x: [at[0]], y: [at[1]], text: [["x", "y"].map((axis, i) =>
        `${names.data[axis][0]} = ${number(at[i])}`).join(", ")]};
  cross.setv({data}, {sync: false});
  words.hidden = place === null;
  usual.hidden = place !== null;
  plane.style.outline = place === null ? "" : "3px solid #00537f";
  plane.style.outlineOffset = "-3px";
};
const sides = () => [across.end - across.start, up.end - up.start];
const digits = () => Math.max(1, 2 - Math.floor(Math.log10(Math.min(...sides()))));
const first = () => {
  const [wide, tall] = sides();
  const seen = at !== null && at[0] > across.start && at[0] < across.end
    && at[1] > up.start && at[1] < up.end;
  return seen ? at : [across.start + 0.3 * wide, up.start + 0.7 * tall];
};
const ways = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowDown: [0, -1], ArrowUp: [0, 1]};
plane.addEventListener("focus", () => { if (plane.matches(":focus-visible")) show(first()); });
plane.addEventListener("blur", () => show(null));
plane.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  if (event.key in ways) {
    const far = (event.shiftKey ? 5 : 1) / steps, size = sides(), before = first();
    const low = [across.start, up.start], high = [across.end, up.end];
    show(before.map((x, i) =>
      Math.min(Math.max(x + ways[event.key][i] * far * size[i], low[i]), high[i])));
  } else if (["Enter", "+", "=", "-"].includes(event.key)) {
    if (words.hidden) show(first());
    count += 1;
    keyed.data = {x: [at[0]], y: [at[1]], key: [event.key], count: [count]};
  } else if (event.key === "Escape") {
    show(null);
  } else return;
  event.preventDefault();
  event.stopPropagation();
});
