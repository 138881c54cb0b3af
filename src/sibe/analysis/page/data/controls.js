// Buttons that stay pressed, and the one that turns the page dark.

function press(button, on) {
  button.setAttribute("aria-pressed", String(on));
}

function addToggle(id, change) {
  const button = document.getElementById(id);
  button.addEventListener("click", () => {
    const on = button.getAttribute("aria-pressed") !== "true";
    press(button, on);
    change(on);
  });
  return button;
}

function setTheme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}

// Begin as the system has it.
function addThemeSwitch() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  setTheme(dark);
  press(addToggle("dark", setTheme), dark);
}
