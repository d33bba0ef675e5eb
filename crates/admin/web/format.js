// Numbers, times and names for people.

const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];
const NONE = "\u2013";
const SPACE = "\u00a0";

// Bytes with a unit: "1.2 GB".
export function bytes(count) {
  if (count === null || count === undefined) {
    return NONE;
  }
  let unit = 0;
  while (count >= 999.5 && unit + 1 < UNITS.length) {
    count /= 1000;
    unit += 1;
  }
  return count.toFixed(unit > 0 && count < 9.95 ? 1 : 0) + SPACE + UNITS[unit];
}

// A number with separators; a small number has one decimal digit.
export function number(count) {
  if (count === null || count === undefined) {
    return NONE;
  }
  const digits = count > 0 && count < 9.95 && !Number.isInteger(count) ? 1 : 0;
  return count.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

// A latency in microseconds: "1.2 ms".
export function latency(micros) {
  if (micros === null || micros === undefined) {
    return NONE;
  }
  if (micros < 1000) {
    return micros.toFixed(0) + SPACE + "\u00b5s";
  }
  if (micros < 1e6) {
    return (micros / 1e3).toFixed(micros < 1e4 ? 1 : 0) + SPACE + "ms";
  }
  return (micros / 1e6).toFixed(1) + SPACE + "s";
}

// A time in its two largest units: "3 d 4 h".
export function span(seconds) {
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const at = Math.max(0, units.findIndex(([, length]) => seconds >= length));
  const from = seconds < 1 ? 3 : at;
  const [name, length] = units[from];
  const first = Math.floor(seconds / length) + SPACE + name;
  const next = units[from + 1];
  if (!next || from >= 2) {
    return first;
  }
  const rest = Math.floor((seconds % length) / next[1]);
  return rest > 0 ? first + " " + rest + SPACE + next[0] : first;
}

// A name chosen by a client, without characters that change how the text around it is displayed.
export function clean(text) {
  return String(text === null || text === undefined ? "" : text).replace(
    /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
    "\ufffd",
  );
}

// "1 session", "2 sessions".
export function counted(count, one) {
  return number(count) + SPACE + one + (count === 1 ? "" : "s");
}
