// Three episodes on one clock: the robot, what the policy sees, the return and the bonus so far.

const data = JSON.parse(document.getElementById("data").textContent);
const DASHES = ["", "6 3", "2 2"];
const REST = 1.5; // seconds between the end of the episodes and their beginning
const SECONDS = {
  log: false,
  hold: false,
  label: "seconds",
  tick: (x) => String(+x.toFixed(2)),
  place: (x) => `${x.toFixed(2)} s`,
};
const [playButton, slider, clock] = ["play", "time", "clock"].map((id) => document.getElementById(id));
const players = data.settings.map(makePlayer);
const charts = [
  { id: "returns", title: "Return so far", values: (episode) => episode.returns },
  { id: "bonuses", title: "Bonus", values: (episode) => [null, ...episode.bonus] },
];
let time = 0;
let speed = 1;
let playing = !matchMedia("(prefers-reduced-motion: reduce)").matches;

function makePlayer(setting, i) {
  const card = document.getElementById(setting.name);
  const find = (name) => card.querySelector(name);
  find(".dot").style.background = setting.color;
  return {
    name: setting.name,
    variant: { label: setting.label, color: setting.color, dash: DASHES[i] },
    robot: find(".robot").getContext("2d"),
    seen: find(".seen").getContext("2d"),
    wait: find(".wait"),
    returned: find(".return"),
    bonus: find(".bonus"),
    total: document.getElementById(`${setting.name}-total`),
    episode: null,
    shown: -1,
  };
}

function loadImage(url) {
  return new Promise((resolve, reject) => {
    const image = new Image();
    image.onload = () => resolve(image);
    image.onerror = reject;
    image.src = url;
  });
}

async function addEpisode(player, episode) {
  const [robot, behind, seen] = await Promise.all(
    [episode.robot, episode.behind, episode.seen].map((urls) => Promise.all(urls.map(loadImage))),
  );
  const returns = [0];
  for (const reward of episode.reward) returns.push(returns.at(-1) + reward);
  const steps = episode.reward.length;
  player.episode = { ...episode, robot, behind, seen, returns, steps, pictures: (robot.length - 1) / steps };
  player.wait.hidden = true;
  player.total.textContent = returns.at(-1).toFixed(0);
  drawCharts();
  draw();
}

function duration() {
  const lengths = players.filter((p) => p.episode).map((p) => p.episode.steps * p.episode.seconds);
  return lengths.length ? Math.max(...lengths) : 0;
}

function drawPlayer(player) {
  const { episode } = player;
  // A hair later: 3 * 0.08 is less than 0.24.
  const at = Math.min(time / episode.seconds + 1e-6, episode.steps);
  const picture = Math.floor(at * episode.pictures);
  if (picture === player.shown) return;
  player.shown = picture;
  const step = Math.floor(at);
  const { robot, seen } = player;
  const { width, height } = robot.canvas;
  if (episode.behind.length) {
    robot.imageSmoothingEnabled = false;
    robot.drawImage(episode.behind[step], 0, 0, width, height);
    robot.imageSmoothingEnabled = true;
  }
  robot.drawImage(episode.robot[picture], 0, 0, width, height);
  seen.drawImage(episode.seen[step], 0, 0);
  player.returned.textContent = episode.returns[step].toFixed(0);
  player.bonus.textContent = step ? episode.bonus[step - 1].toFixed(4) : "–";
}

function drawCharts() {
  const ready = players.filter((player) => player.episode);
  for (const chart of charts) {
    const holder = document.getElementById(chart.id);
    const curves = ready.map(({ episode, variant }) => {
      const mean = chart.values(episode);
      const nothing = mean.map(() => null);
      const x = mean.map((_, i) => i * episode.seconds);
      return { x, mean, low: nothing, high: nothing, n: null, seeds: [0], values: [mean], variant };
    });
    if (!curves.length) continue;
    chart.drawn = drawPanel(holder, chart.title, curves, false, SECONDS);
    drawLegend(holder, curves);
    addPlayhead(chart);
  }
  moveCharts();
}

// The curves are there as far as the clock is.
function addPlayhead(chart) {
  const { svg, lines, size } = chart.drawn;
  const clip = svgElement(svg, "clipPath", { id: `${chart.id}-clip` });
  chart.window = svgElement(clip, "rect", { x: 0, y: 0, width: 0, height: size.height });
  lines.setAttribute("clip-path", `url(#${chart.id}-clip)`);
  chart.head = svgElement(svg, "line", { class: "cursor", y1: MARGIN.top, y2: size.height - MARGIN.bottom });
}

function moveCharts() {
  for (const chart of charts.filter((each) => each.drawn)) {
    const x = chart.drawn.sx(Math.min(time, duration()));
    chart.window.setAttribute("width", x + 1);
    chart.head.setAttribute("x1", x);
    chart.head.setAttribute("x2", x);
  }
}

function draw() {
  players.filter((player) => player.episode).forEach(drawPlayer);
  moveCharts();
  const end = duration();
  const now = Math.min(time, end);
  slider.max = end || 10;
  slider.value = now;
  clock.textContent = `${now.toFixed(1)} of ${end.toFixed(0)} s`;
}

function setPlaying(on) {
  playing = on;
  playButton.textContent = on ? "Pause" : "Play";
  if (on && time >= duration()) time = 0;
}

function setSpeed(value) {
  speed = value;
  document.querySelectorAll("#speeds button").forEach((b) => press(b, +b.value === value));
}

function addSpeeds() {
  const group = document.getElementById("speeds");
  for (const [value, label] of [[0.5, "½×"], [1, "1×"], [2, "2×"]]) {
    const button = htmlElement(group, "button", label, { type: "button", value });
    button.addEventListener("click", () => setSpeed(value));
  }
  setSpeed(speed);
}

function addKeys() {
  document.addEventListener("keydown", (event) => {
    // On a button the space bar presses it, as everywhere.
    if (event.key !== " " || event.target.closest("button, input, a, summary")) return;
    event.preventDefault();
    setPlaying(!playing);
  });
}

function run() {
  let before = performance.now();
  const tick = (now) => {
    if (playing && duration()) {
      time += ((now - before) / 1000) * speed;
      if (time > duration() + REST) time = 0;
      draw();
    }
    before = now;
    requestAnimationFrame(tick);
  };
  requestAnimationFrame(tick);
}

function showState(player, state) {
  if (player.episode) return;
  const part = Math.round(100 * state.progress);
  player.wait.textContent = state.error || (part ? `Playing: ${part} %` : "Waiting for its turn");
}

async function fetchJson(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

async function follow() {
  const asked = new Set();
  while (asked.size < players.length) {
    let state;
    try {
      state = await fetchJson("state.json");
    } catch {
      players.filter((p) => !p.episode).forEach((p) => (p.wait.textContent = "The server has ended."));
      return;
    }
    for (const player of players.filter((each) => !asked.has(each.name))) {
      const mine = state[player.name];
      showState(player, mine);
      if (mine.ready) fetchJson(`episode/${player.name}.json`).then((episode) => addEpisode(player, episode));
      if (mine.ready || mine.error) asked.add(player.name);
    }
    await new Promise((resolve) => setTimeout(resolve, 400));
  }
}

addThemeSwitch();
addSpeeds();
addKeys();
playButton.addEventListener("click", () => setPlaying(!playing));
slider.addEventListener("input", () => {
  setPlaying(false);
  time = +slider.value;
  draw();
});
setPlaying(playing);
let width = 0;
new ResizeObserver(([entry]) => {
  if (entry.contentRect.width === width) return;
  width = entry.contentRect.width;
  drawCharts();
}).observe(document.querySelector(".panels"));
run();
if (data.live) follow();
else {
  for (const player of players) {
    if (data.episodes[player.name]) addEpisode(player, data.episodes[player.name]);
    else showState(player, data.state[player.name]);
  }
}
