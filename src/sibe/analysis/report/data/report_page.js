// What is chosen on the page, and the panels that follow from it.

const data = JSON.parse(document.getElementById("data").textContent);
const panels = document.getElementById("panels");
const ALL_TASKS = "";
const chosen = {
  background: data.backgrounds[0].name,
  measure: data.measures[0].name,
  task: ALL_TASKS,
  shown: data.variants.map((variant) => variant.shown),
  everySeed: false,
};

function curvesOf(task) {
  return data.curves
    .filter((c) => c.task === task && c.background === chosen.background && c.measure === chosen.measure)
    .map((c) => ({ ...c, variantIndex: c.variant, variant: data.variants[c.variant] }));
}

function drawPanels() {
  panels.replaceChildren();
  panels.classList.toggle("single", chosen.task !== ALL_TASKS);
  const tasks = data.tasks.filter((task) => chosen.task === ALL_TASKS || task === chosen.task);
  const filled = tasks.map((task) => [task, curvesOf(task)]).filter(([, curves]) => curves.length);
  if (!filled.length) htmlElement(panels, "p", "No run has this measure for this task and setting.");
  // All holders first, so that each has its final width when it is drawn.
  const holders = filled.map(() => htmlElement(panels, "figure", "", { className: "panel" }));
  filled.forEach(([task, curves], i) => {
    const visible = curves.filter((c) => chosen.shown[c.variantIndex]);
    drawPanel(holders[i], task, visible, chosen.everySeed);
  });
  markAbsentArms();
}

// An variant without a curve in this setting and measure has nothing to switch.
function markAbsentArms() {
  const there = new Set(data.tasks.flatMap((task) => curvesOf(task).map((c) => c.variantIndex)));
  document.querySelectorAll("#variants button").forEach((button, i) => {
    button.hidden = !there.has(i);
  });
}

// Buttons of which exactly one is pressed.
function addChoice(id, options, key) {
  const group = document.getElementById(id);
  group.hidden = options.length < 2;
  const buttons = options.map(({ name, label }) => {
    const button = htmlElement(group, "button", label, { type: "button" });
    press(button, chosen[key] === name);
    button.addEventListener("click", () => {
      chosen[key] = name;
      buttons.forEach((other) => press(other, other === button));
      drawPanels();
    });
    return button;
  });
}

function addArms() {
  const group = document.getElementById("variants");
  data.variants.forEach((variant, i) => {
    const button = htmlElement(group, "button", "", { type: "button" });
    drawSwatch(button, variant);
    button.append(variant.label);
    press(button, chosen.shown[i]);
    button.addEventListener("click", () => {
      chosen.shown[i] = !chosen.shown[i];
      press(button, chosen.shown[i]);
      drawPanels();
    });
  });
}

function addTasks() {
  const select = document.getElementById("task");
  select.add(new Option("all", ALL_TASKS));
  data.tasks.forEach((task) => select.add(new Option(task, task)));
  select.addEventListener("change", () => {
    chosen.task = select.value;
    drawPanels();
  });
}

addChoice("settings", data.backgrounds, "background");
addChoice("measures", data.measures, "measure");
addTasks();
addArms();
addToggle("seeds", (on) => {
  chosen.everySeed = on;
  drawPanels();
});
addThemeSwitch();
let width = 0;
new ResizeObserver(() => {
  if (panels.clientWidth === width) return;
  width = panels.clientWidth;
  drawPanels();
}).observe(panels);
