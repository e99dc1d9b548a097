// The keyboard, wherever the focus is, except where it is typing. A file that was chosen is no typing.

const TYPING = "input:not([type=radio], [type=checkbox], [type=file]), select, textarea, dialog, [role=slider]";
const MODES = { w: "watch", m: "mark", c: "correct" };

export function setUpKeys(act) {
  window.addEventListener("keydown", (event) => {
    if (event.target.closest?.(TYPING)) return;
    if (event.key === "?") run(event, act.help);
    if (!act.open()) return;
    if (event.ctrlKey || event.metaKey) {
      const key = event.key.toLowerCase(); // a capital with Shift, and with Caps Lock
      if (key === "z") run(event, event.shiftKey ? act.redo : act.undo);
      else if (key === "y" && event.ctrlKey) run(event, act.redo);
      return;
    }
    const onButton = event.target.closest?.("button, a, label, summary");
    if (event.key === " " && (!onButton || event.target.closest(".region"))) run(event, act.toggle);
    else if (event.key === "ArrowRight") run(event, () => act.seek(event.shiftKey ? 0.1 : 1));
    else if (event.key === "ArrowLeft") run(event, () => act.seek(event.shiftKey ? -0.1 : -1));
    else if (event.key === "n") run(event, () => act.jump(1));
    else if (event.key === "p") run(event, () => act.jump(-1));
    else if (event.key === "e") run(event, act.mark);
    else if (event.key === "a") run(event, act.add);
    else if (event.key === "r") run(event, act.recount);
    else if (event.key === "Delete") run(event, act.remove);
    else if (event.key === "Escape") run(event, act.letGo);
    else if (event.key in MODES) run(event, () => act.mode(MODES[event.key]));
  });
}

function run(event, action) {
  event.preventDefault();
  action();
}
