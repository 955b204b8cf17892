(function () {
  "use strict";
  const data = JSON.parse(document.getElementById("dial-data").textContent);
  const find = (name) => document.getElementById("dial-" + name);
  const slider = find("at"), search = find("search"), select = find("row");
  const figure = (value) => value.toFixed(3);

  function fill(parent, lines) {
    parent.replaceChildren(...lines.map((cells) => {
      const line = document.createElement("tr");
      cells.forEach((cell, place) => {
        const one = document.createElement(place === 0 ? "th" : "td");
        if (place === 0) { one.scope = "row"; }
        one.textContent = cell;
        line.append(one);
      });
      return line;
    }));
  }

  function showSetting() {
    const at = data.settings[Number(slider.value)];
    const use = Number(slider.value) === data.chosen ? " This is the setting in use." : "";
    const says = at.size.toFixed(1) + " features a row, at a penalty of " +
      at.penalty.toPrecision(3) + " nats for each." + use;
    find("says").textContent = says;
    slider.setAttribute("aria-valuetext", says);
    find("sentence").textContent = at.sentence;
    find("scores").replaceChildren(...at.scores.flatMap(([name, value, spread]) => {
      const term = document.createElement("dt"), text = document.createElement("dd");
      term.textContent = name;
      text.textContent = value + " " + spread;
      return [term, text];
    }));
    fill(find("groups"), at.groups.map(([name, kept, ...span]) =>
      [name, figure(kept), ...(span.length ? [span.map(figure).join(" – ")] : [])]));
    showRow();
  }

  function showRow() {
    const place = Number(select.value);
    if (select.value === "") {
      ["row-says", "steps", "closest"].forEach((name) => find(name).replaceChildren());
      return;
    }
    const row = data.rows[place], at = data.settings[Number(slider.value)].rows[place];
    find("row-says").textContent = "Row " + row.number + ": observed " + row.observed +
      ", predicted " + at.predicted + ".";
    const kept = new Map(at.kept), steps = at.steps.map(([name, total]) =>
      [name, total, kept.has(name) ? figure(kept.get(name)) : ""]);
    fill(find("steps"), steps);
    const near = at.closest.map((other) => data.rows[other].number + " (" +
      data.rows[other].observed + ")");
    find("closest").textContent = near.length === 0 ? "" :
      "Closest rows with another outcome, by what this row keeps: " + near.join(", ") + ".";
  }

  const isNumber = (word) => /^\d+$/.test(word);

  function listRows() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean), before = select.value;
    const fits = data.rows.map((row, place) => [row, place]).filter(([row]) => {
      const text = (row.observed + " " + Object.entries(row.values)
        .map(([name, value]) => name + "=" + value).join(" ")).toLowerCase();
      return words.every((word) => isNumber(word) ? Number(word) === row.number
        : text.includes(word));
    });
    const shown = "the " + data.rows.length + " shown, of " + data.total + " rows";
    const number = words.find(isNumber), advice = number ? ": give --row " + number + "." : ".";
    find("listed").textContent = fits.length > 0 ? fits.length + " of " + shown + "."
      : (number ? "Row " + number : "Such a row") + " is not among " + shown + advice;
    select.replaceChildren(...fits.map(([row, place]) => {
      const option = document.createElement("option");
      option.value = String(place);
      option.textContent = row.number + " (" + row.observed + ")";
      return option;
    }));
    if (fits.some(([, place]) => String(place) === before)) { select.value = before; }
    showRow();
  }

  slider.addEventListener("input", showSetting);
  search.addEventListener("input", listRows);
  select.addEventListener("change", showRow);
  listRows();
  showSetting();
})();
