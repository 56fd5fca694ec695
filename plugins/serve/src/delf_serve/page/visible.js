// Text as a person is shown it: the rules of delf/terminal.py, held against the same table of cases.

const HIDDEN = /[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2000-\u200a\u205f\u2800\u3164\ufe00-\ufe0f\uffa0\u{1d159}\u{e0100}-\u{e01ef}]/u;
const SPACES = "\u00a0\u202f\u3000";
const JOINED = /[\u0600-\u0dff\u1000-\u109f]/u;
const SKINS = /[\u{1f3fb}-\u{1f3ff}]/u;
const UNPRINTABLE = /[\p{C}\p{Z}]/u;
const MAY_HIDE = new RegExp(`[^\\P{C}\\n\\t]|(?! )\\p{Z}|${HIDDEN.source}`, "u");

const LABEL = "0-9A-Za-z_\\-\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u1fff\u2100-\u218f\u2460-\u24ff\u2c00-\u2fdf\u3040-\ud7ff\uf900-\ufdff\ufe70-\ufefe\uff10-\uff19\uff21-\uff3a\uff41-\uff5a\uff66-\uffdc\u{10000}-\u{1efff}\u{20000}-\u{3ffff}";
const DOTS = ".\u3002\uff0e\uff61";
const NAME = new RegExp(`(?<before>(?<who>[${LABEL}.+'%]{0,64})@|:\\/\\/(?:[^\\s\\/@]{0,200}@)?|domain:|)(?<host>[${LABEL}]+(?:[${DOTS}][${LABEL}]+)*)`, "gu");
const BARE = new RegExp(`(?:^www[${DOTS}]|[${DOTS}](?:com|net|org|biz|edu|gov|mil|io|eu)$)`, "iu");
const PLAIN = /[\u00c0-\u0130\u0132-\u0137\u0139-\u0148\u014a-\u017e\u01a0\u01a1\u01af\u01b0\u01cd-\u01dc\u0218-\u021b\u0300-\u036f\u1e00-\u1eff\u1100-\u11ff\u3040-\u312f\u3400-\u9fff\uac00-\ud7ff\uf900-\ufaff\u{20000}-\u{3ffff}]/gu;
const ALIKE = /[\u0131\u0138\u0149\u017f-\u019f\u01a2-\u01ae\u01b1-\u01cc\u01dd-\u0217\u021c-\u02ff\u0370-\u058f\u10a0-\u10ff\u13a0-\u167f\u1c80-\u1dbf\u1f00-\u1fff\u2100-\u218f\u2460-\u24ff\u2c00-\u2dff\ua4d0-\ua4ff\ua640-\ua69f\ua720-\ua7ff\uab30-\uabbf\uff10-\uff5a\u{10100}-\u{107ff}\u{1d400}-\u{1d7ff}]/u;
const RUNS = new RegExp(`(?:[A-Za-z]|${PLAIN.source}|${ALIKE.source})+`, "gu");
const ENDING = new RegExp(`[${DOTS}][A-Za-z]{2,24}$`, "u");
const MARKS = "\u0300-\u036f\u0483-\u0489\u0610-\u061a\u064b-\u065f\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f";
const STACKED = new RegExp(`([${MARKS}]{4})([${MARKS}]+)`, "gu");
const BEYOND_ASCII = /[^\u0000-\u007f]/;

/** A text without anything that cannot be seen, or passes for another name. Line breaks and tabs stay. */
export function visible(text) {
  const seen = MAY_HIDE.test(text) ? withoutHidden(text) : text;
  if (!BEYOND_ASCII.test(seen)) return seen;
  return seen.replace(STACKED, (_, some, more) => some + [...more].map(escaped).join("")).replace(NAME, shownName);
}

function withoutHidden(text) {
  const signs = [...text.replaceAll("\r\n", "\n")];
  return signs.map((sign, n) => shown(sign, signs[n - 1] ?? "", signs[n + 1] ?? "")).join("");
}

const isSymbol = (sign) => /^\p{So}$/u.test(sign);

function shown(sign, before, after) {
  if (SPACES.includes(sign)) return " ";
  if (sign === "\n" || sign === "\t" || sign === " ") return sign;
  if (!UNPRINTABLE.test(sign) && !HIDDEN.test(sign)) return sign;
  if ((sign === "\u200c" || sign === "\u200d") && joins(before, after)) return sign;
  if ((sign === "\ufe0e" || sign === "\ufe0f") && isSymbol(before)) return sign;
  return escaped(sign);
}

/** Whether a joiner between two signs is a part of how they look. */
function joins(before, after) {
  if (JOINED.test(before) && JOINED.test(after)) return true;
  return isSymbol(after) && (isSymbol(before) || before === "\ufe0e" || before === "\ufe0f" || SKINS.test(before));
}

function escaped(sign) {
  const code = sign.codePointAt(0);
  if (sign === "\r") return "\\r";
  if (code < 0x100) return `\\x${code.toString(16).padStart(2, "0")}`;
  return code < 0x10000 ? `\\u${code.toString(16).padStart(4, "0")}` : `\\U${code.toString(16).padStart(8, "0")}`;
}

/** An address or a host's name; what looks like another one is shown by its code. */
function shownName(whole, ...found) {
  const { before, who, host } = found.at(-1);
  if (!before && !BARE.test(host) && !mixesLetters(host)) return whole;
  let head = before;
  if (who && passesForAnother(`${who}.${host}`)) head = [...before].map(shownLetter).join("");
  if (!passesForAnother(host)) return head + host;
  return head + host.split(new RegExp(`([${DOTS}])`, "u")).map((label) => {
    if (!BEYOND_ASCII.test(label)) return label;
    return DOTS.includes(label) ? "." : `xn--${punycode(label)}`;
  }).join("");
}

/** Whether what ends as a host's name has a word with plain Latin letters and such as look so. */
const mixesLetters = (host) => ENDING.test(host) && (host.match(RUNS) ?? []).some((run) => ALIKE.test(run) && /[A-Za-z]/.test(run));

const shownLetter = (sign) => !BEYOND_ASCII.test(sign) || sign.search(PLAIN) === 0 ? sign : escaped(sign);

/** Whether a name mixes plain Latin letters with others that may look like them. */
function passesForAnother(name) {
  if (!BEYOND_ASCII.test(name)) return false;
  const others = name.replace(PLAIN, "");
  if (ALIKE.test(others) && /[A-Za-z]/.test(name)) return true;
  return others.split(new RegExp(`[${DOTS}]`, "u")).some((label) => BEYOND_ASCII.test(label) && /[A-Za-z]/.test(label));
}

/** The code of RFC 3492 for a label. */
function punycode(label) {
  const points = [...label].map((sign) => sign.codePointAt(0));
  const digit = (n) => String.fromCharCode(n < 26 ? n + 97 : n + 22);
  const basic = points.filter((point) => point < 128);
  let out = String.fromCharCode(...basic) + (basic.length ? "-" : "");
  let [next, delta, bias, done] = [128, 0, 72, basic.length];
  while (done < points.length) {
    const least = Math.min(...points.filter((point) => point >= next));
    delta += (least - next) * (done + 1);
    next = least;
    for (const point of points) {
      if (point < next) delta += 1;
      if (point !== next) continue;
      let rest = delta;
      for (let k = 36; ; k += 36) {
        const limit = Math.min(26, Math.max(1, k - bias));
        if (rest < limit) break;
        out += digit(limit + (rest - limit) % (36 - limit));
        rest = Math.floor((rest - limit) / (36 - limit));
      }
      out += digit(rest);
      delta = Math.floor(delta / (done === basic.length ? 700 : 2));
      done += 1;
      delta += Math.floor(delta / done);
      bias = 0;
      while (delta > 455) { delta = Math.floor(delta / 35); bias += 36; }
      bias += Math.floor(36 * delta / (delta + 38));
      delta = 0;
    }
    delta += 1;
    next += 1;
  }
  return out;
}
