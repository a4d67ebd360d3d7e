// The mouse over the plane: near a start a drag moves it, elsewhere it does what is chosen; a
// click's dot is put down, and what is under the mouse is asked for by "under" once it rests.
// Bokeh runs this at every event, as the body of a function of its arguments and cb_obj.
const near = (x, y) => Array.from(starts.data.x).some((at, i) =>
  Math.abs(at - x) < part * (across.end - across.start)
  && Math.abs(starts.data.y[i] - y) < part * (up.end - up.start));
const {x, y} = cb_obj;
if (cb_obj.event_name === "tap") {
  if (!near(x, y)) {
    clicked.setv({data: {x: [x], y: [y]}}, {sync: false});
    setTimeout(() => clicked.setv({data: {x: [], y: []}}, {sync: false}), 1000);
  }
  return;
}
const tool = near(x, y) ? null : [zoom, pan, null][drag.active];
if (bar.active_drag !== tool) bar.active_drag = tool;
clearTimeout(window.hovering);
const inside = x > across.start && x < across.end && y > up.start && y < up.end;
window.hovering = setTimeout(() => {
  const there = inside && cb_obj.event_name !== "mouseleave";
  under.data = there ? {x: [x], y: [y]} : {x: [], y: []};
}, wait);
