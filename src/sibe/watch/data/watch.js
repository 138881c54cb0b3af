// A run as it is now, asked for again every few seconds.

const data = JSON.parse(document.getElementById("data").textContent);
const EVERY = { training: 2000, other: 5000 }; // milliseconds
const WORDS = {
  training: "Training",
  finished: "Finished",
  stopped: "Stopped",
  gone: "Gone",
  damaged: "Cannot be read",
};
const place = (id) => document.getElementById(id);
let run = data.run;
let pending = false; // charts that wait for the reader to look elsewhere
let film = null;

function notice(text) {
  place("notice").hidden = !text;
  place("notice").textContent = text;
}

function showState() {
  const badge = place("state");
  badge.textContent = WORDS[run.state];
  badge.dataset.state = run.state;
  document.title = `${WORDS[run.state]}: sibe watch`;
  notice(run.note);
  if (!run.charts) return; // gone or damaged: what was shown last stays
  place("title").textContent = run.title;
  place("setting").textContent = run.setting;
  place("progress").value = Math.min(1, run.reached / run.planned);
  place("steps").textContent = `${run.reached.toLocaleString("en")} of ${run.planned.toLocaleString("en")} env steps`;
  place("facts").replaceChildren(
    ...run.facts.map(([label, text]) => {
      const fact = document.createElement("div");
      htmlElement(fact, "dt", label);
      htmlElement(fact, "dd", text);
      return fact;
    }),
  );
}

function drawChart(holder, chart) {
  if (chart.curves.length) {
    drawPanel(holder, chart.title, chart.curves, false, { ...ENV_STEPS, log: chart.log, hold: true });
    if (chart.curves.length > 1) drawLegend(holder, chart.curves);
  } else {
    holder.replaceChildren();
    htmlElement(holder, "figcaption", chart.title);
    htmlElement(holder, "p", "The first episode is not finished yet.");
  }
}

function drawCharts() {
  if (!run.charts) return;
  // A panel that is being read is not pulled away.
  pending = document.querySelector(".panel > svg:hover, .panel > svg:focus") !== null;
  if (pending) return;
  const [first, ...rest] = run.charts;
  const panels = place("panels");
  place("metrics").hidden = !rest.length;
  while (panels.children.length > rest.length) panels.lastChild.remove();
  while (panels.children.length < rest.length) htmlElement(panels, "figure", "", { className: "panel" });
  drawChart(place("return"), first);
  rest.forEach((chart, i) => drawChart(panels.children[i], chart));
}

async function showVideo() {
  if (!run.charts) return;
  const video = place("video");
  const none = run.has_videos
    ? "No video yet: one is made at the last evaluation."
    : "This run makes no videos (--schedule.no-video).";
  place("film").textContent = run.video ? "Newest evaluation: what the agent sees" : none;
  video.hidden = !run.video;
  if (!data.live || run.video === film) return;
  film = run.video;
  if (!film) return;
  const answer = await fetch("video.mp4");
  if (!answer.ok) return;
  URL.revokeObjectURL(video.src);
  // As a blob: Safari plays from a server only in ranges.
  video.src = URL.createObjectURL(await answer.blob());
  if (!matchMedia("(prefers-reduced-motion: reduce)").matches) video.play().catch(() => {});
}

function show() {
  showState();
  drawCharts();
  showVideo().catch(() => {});
}

async function ask() {
  try {
    const answer = await fetch("state.json");
    const text = await answer.text();
    if (text !== ask.last) {
      ask.last = text;
      run = JSON.parse(text);
      show();
    } else {
      notice(run.note);
      if (pending) drawCharts();
    }
    const when = new Date().toLocaleTimeString();
    place("foot").textContent = `Refreshes itself; last at ${when}.`;
  } catch {
    notice("The server has ended. Start `sibe watch` again on the same --port, and this page goes on.");
  }
  setTimeout(ask, EVERY[run.state] || EVERY.other);
}

addThemeSwitch();
show();
let width = 0;
new ResizeObserver(([entry]) => {
  if (entry.contentRect.width === width) return;
  width = entry.contentRect.width;
  drawCharts();
}).observe(document.querySelector("main"));
if (data.live) setTimeout(ask, EVERY.training);
