"use strict";
// Adds to a page that is whole without it: hover, zoom, hiding; and, where the page is served live, its updates.
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const kept = new Map(); // a figure's hidden curves and zoom, over live updates

  const element = (name, kind, parent) => {
    const made = document.createElementNS(SVG, name);
    made.setAttribute("class", kind);
    parent.append(made);
    return made;
  };
  const put = (node, values) => Object.entries(values).forEach(([key, value]) => node.setAttribute(key, value));
  const number = (value, percent) =>
    percent ? `${+(100 * value).toFixed(2)} %` : Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : String(+value.toPrecision(5));
  const readData = (figure) => JSON.parse(figure.querySelector("script").textContent);
  const inside = (svg, event) => new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());

  function tipOf(figure) {
    const tip = document.createElement("div");
    tip.className = "tip off";
    figure.append(tip);
    return (lines, svg, x, y) => {
      tip.classList.toggle("off", !lines);
      if (!lines) return;
      tip.replaceChildren(...lines.flatMap((line, i) => (i ? [document.createElement("br"), line] : [line])));
      const frame = figure.getBoundingClientRect();
      const place = new DOMPoint(x, y).matrixTransform(svg.getScreenCTM());
      const left = place.x - frame.left + 14;
      tip.style.left = `${Math.max(0, left + tip.offsetWidth > frame.width ? left - tip.offsetWidth - 28 : left)}px`;
      tip.style.top = `${place.y - frame.top - 12}px`;
    };
  }

  function chart(figure) {
    const svg = figure.querySelector("svg");
    const { percent, frame, plot, series } = readData(figure);
    const state = kept.get(figure.id) || { hidden: new Set(), from: frame.left, to: frame.right, whole: true };
    if (state.whole) Object.assign(state, { from: frame.left, to: frame.right });
    kept.set(figure.id, state);
    const show = tipOf(figure);
    const over = element("g", "over", svg);
    const cross = element("line", "cross off", over);
    const brush = element("rect", "brush off", over);
    const dots = series.map((item) => { const dot = element("circle", `dot off c${item.c}`, over); dot.setAttribute("r", 4); return dot; });
    const legend = figure.querySelector(".legend");
    const reset = document.createElement("button");
    reset.type = "button"; reset.className = "reset"; reset.textContent = "show all rounds";
    const toX = (value) => plot.x + ((value - state.from) / (state.to - state.from)) * plot.w;
    const toY = (value) => plot.y + plot.h - ((value - frame.low) / (frame.high - frame.low)) * plot.h;
    const toRound = (x) => state.from + ((Math.min(plot.x + plot.w, Math.max(plot.x, x)) - plot.x) / plot.w) * (state.to - state.from);
    let at = null;

    function nearest(item, round) {
      let best = 0;
      item.x.forEach((x, i) => { if (Math.abs(x - round) < Math.abs(item.x[best] - round)) best = i; });
      return best;
    }
    function point(round, y) {
      const lines = [];
      let x = null;
      series.forEach((item, i) => {
        const k = nearest(item, round);
        const seen = !state.hidden.has(i) && item.x[k] >= state.from && item.x[k] <= state.to;
        dots[i].classList.toggle("off", !seen);
        if (!seen) return;
        x = x === null ? item.x[k] : x;
        put(dots[i], { cx: toX(item.x[k]), cy: toY(item.y[k]) });
        lines.push(`${item.name}: ${number(item.y[k], percent)}`);
      });
      cross.classList.toggle("off", x === null);
      at = x;
      if (x === null) return show(null);
      put(cross, { x1: toX(x), x2: toX(x), y1: plot.y, y2: plot.y + plot.h });
      show([`round ${number(x)}`, ...lines], svg, toX(x), y === undefined ? plot.y + 20 : y);
    }
    function leave() { show(null); [cross, brush, ...dots].forEach((node) => node.classList.add("off")); }
    function redraw() {
      const scale = (frame.right - frame.left) / (state.to - state.from);
      const shift = plot.x - scale * (plot.x + ((state.from - frame.left) / (frame.right - frame.left)) * plot.w);
      figure.querySelector(".zoom").setAttribute("transform", `translate(${shift} 0) scale(${scale} 1)`);
      figure.querySelectorAll(".zoom [data-series]").forEach((path) => path.classList.toggle("off", state.hidden.has(+path.dataset.series)));
      reset.classList.toggle("off", state.whole);
      if (!state.whole) {
        const axis = figure.querySelector(".x-axis");
        axis.replaceChildren();
        for (let i = 0; i <= 4; i += 1) {
          const value = Math.round(state.from + (i / 4) * (state.to - state.from));
          const text = element("text", "tick x", axis);
          put(text, { x: toX(value), y: plot.y + plot.h + 18 });
          text.textContent = number(value);
        }
      }
    }
    const axisBefore = [...figure.querySelector(".x-axis").children];
    function zoom(from, to) {
      const least = Math.max(1, (frame.right - frame.left) / 200);
      if (to - from < least) return;
      Object.assign(state, { from: Math.max(frame.left, from), to: Math.min(frame.right, to), whole: false });
      if (state.from <= frame.left && state.to >= frame.right) return all();
      redraw();
    }
    function all() {
      Object.assign(state, { from: frame.left, to: frame.right, whole: true });
      figure.querySelector(".x-axis").replaceChildren(...axisBefore);
      redraw(); leave();
    }

    let start = null;
    svg.addEventListener("pointerdown", (event) => { if (event.pointerType === "mouse" && event.button === 0) { start = inside(svg, event).x; svg.setPointerCapture(event.pointerId); } });
    svg.addEventListener("pointermove", (event) => {
      const here = inside(svg, event);
      point(toRound(here.x), here.y);
      if (start === null) return;
      brush.classList.remove("off");
      put(brush, { x: Math.max(plot.x, Math.min(start, here.x)), y: plot.y, width: Math.abs(here.x - start), height: plot.h });
    });
    svg.addEventListener("pointerup", (event) => {
      if (start === null) return;
      const ends = [toRound(start), toRound(inside(svg, event).x)].sort((a, b) => a - b);
      start = null; brush.classList.add("off");
      zoom(...ends);
    });
    svg.addEventListener("pointerleave", leave);
    svg.addEventListener("blur", leave);
    svg.addEventListener("dblclick", all);
    svg.addEventListener("keydown", (event) => {
      const shownSeries = series.find((item, i) => !state.hidden.has(i));
      if (!shownSeries) return;
      const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (move) {
        const k = at === null ? (move > 0 ? 0 : shownSeries.x.length - 1) : nearest(shownSeries, at) + move;
        point(shownSeries.x[Math.max(0, Math.min(shownSeries.x.length - 1, k))]);
      } else if (event.key === "+" || event.key === "-") {
        const middle = at === null ? (state.from + state.to) / 2 : at;
        const half = ((state.to - state.from) / 2) * (event.key === "+" ? 0.5 : 2);
        zoom(middle - half, middle + half);
      } else if (event.key === "Escape") all();
      else return;
      event.preventDefault();
    });
    legend.querySelectorAll(".key[data-series]").forEach((key) => {
      const button = document.createElement("button");
      const index = +key.dataset.series;
      button.type = "button"; button.className = "key"; button.title = "show or hide";
      button.id = `${figure.id}-key-${index}`;
      button.setAttribute("aria-pressed", String(!state.hidden.has(index)));
      button.append(...key.childNodes);
      button.addEventListener("click", () => {
        if (!state.hidden.delete(index)) state.hidden.add(index);
        button.setAttribute("aria-pressed", String(!state.hidden.has(index)));
        redraw(); leave();
      });
      key.replaceWith(button);
    });
    reset.addEventListener("click", all);
    legend.append(reset);
    redraw();
  }

  function grid(figure) {
    const svg = figure.querySelector("svg");
    const data = readData(figure);
    const show = tipOf(figure);
    let row = 0, column = 0;
    function point() {
      const first = column * data.width + 1, last = Math.min(data.rounds, first + data.width - 1);
      const sent = data.sent[row][column], bad = data.bad[row][column];
      const rounds = data.width === 1 ? `round ${first}` : `rounds ${first} to ${last}`;
      const said = sent === 0 ? "took no part" : data.width === 1 ? (bad ? "rejected" : "accepted") : `${sent - bad} accepted, ${bad} rejected`;
      show([data.names[row], `${rounds}: ${said}`], svg, data.left + (column + 0.5) * data.cell, (row + 1) * data.height);
    }
    svg.addEventListener("pointermove", (event) => {
      const here = inside(svg, event);
      row = Math.floor(here.y / data.height); column = Math.floor((here.x - data.left) / data.cell);
      if (row < 0 || column < 0 || row >= data.names.length || column >= data.sent[0].length) { row = 0; column = 0; return show(null); }
      point();
    });
    svg.addEventListener("pointerleave", () => show(null));
    svg.addEventListener("blur", () => show(null));
    svg.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
      if (!move) return;
      row = Math.max(0, Math.min(data.names.length - 1, row + move[0]));
      column = Math.max(0, Math.min(data.sent[0].length - 1, column + move[1]));
      point();
      event.preventDefault();
    });
  }

  function enhance() {
    document.querySelectorAll("figure.chart:not(.empty)").forEach(chart);
    document.querySelectorAll("figure.grid").forEach(grid);
  }

  function live() {
    let shown = document.documentElement.dataset.live;
    const say = (kind, words) => document.querySelectorAll("[data-status]").forEach((pill) => {
      if (pill.textContent !== words) pill.textContent = words;
      pill.className = `pill ${kind}`;
    });
    async function refresh() {
      const answer = await fetch("/", { cache: "no-store" });
      if (!answer.ok) return;
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      const open = new Set([...document.querySelectorAll("details[open]")].map((node) => node.id));
      const closed = new Set([...document.querySelectorAll("details:not([open])")].map((node) => node.id));
      const focused = document.activeElement && document.activeElement.id;
      const scroll = [window.scrollX, window.scrollY];
      for (const part of ["header.page", "main", "footer.page"]) document.querySelector(part).replaceWith(fresh.querySelector(part));
      document.querySelectorAll("details").forEach((node) => { if (open.has(node.id)) node.open = true; if (closed.has(node.id)) node.open = false; });
      document.title = fresh.title;
      shown = fresh.documentElement.dataset.live;
      enhance();
      window.scrollTo(...scroll);
      const again = focused && document.getElementById(focused);
      if (again) again.focus({ preventScroll: true });
    }
    async function look() {
      try {
        const answer = await fetch("/state", { cache: "no-store" });
        if (!answer.ok) throw new Error(answer.status);
        const state = await answer.json();
        if (state.stamp !== shown) await refresh();
        say(state.status, state.said);
      } catch {
        say("lost", "no answer from precad watch: trying again");
      }
      setTimeout(look, 1000);
    }
    look();
  }

  enhance();
  if (document.documentElement.dataset.live !== undefined) live();
})();
