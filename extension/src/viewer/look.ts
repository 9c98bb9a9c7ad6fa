/** Colours, patterns and the style sheet of the viewer. */

import { KINDS } from './track';

/** Okabe and Ito's colours by kind, as in the other views; their yellow cannot be seen on white. */
export const COLOURS = [
  '', '#009E73', '#0072B2', '#CC79A7', '#D55E00', '#999999', '#E69F00', '#56B4E9', '#7F8FA6', '#9A8500'
];
/**
 * What is darker in a square of 8 pixels of each kind, row by row: a meaning is in no colour alone.
 * Empty: a kind without a pattern.
 */
const PATTERNS: number[][] = [
  [],
  [],
  [0x80, 0x40, 0x20, 0x10, 0x08, 0x04, 0x02, 0x01],
  [0xff, 0x00, 0x00, 0x00, 0xff, 0x00, 0x00, 0x00],
  [0x00, 0x66, 0x66, 0x00, 0x00, 0x66, 0x66, 0x00],
  [0xff, 0x00, 0xff, 0x00, 0xff, 0x00, 0xff, 0x00],
  [0x11, 0x22, 0x44, 0x88, 0x11, 0x22, 0x44, 0x88],
  [0x81, 0x42, 0x24, 0x18, 0x18, 0x24, 0x42, 0x81],
  [],
  [0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11]
];

/** A pixel of each kind, as the bytes red, green, blue and alpha of a canvas: plain, and darker. */
function pixels(darker: number): Uint32Array {
  const found = new Uint32Array(KINDS);
  for (let kind = 1; kind < KINDS; kind++) {
    const [red, green, blue] = [1, 3, 5].map(at =>
      Math.round(parseInt(COLOURS[kind].slice(at, at + 2), 16) * darker)
    );
    found[kind] = (blue << 16) | (green << 8) | red;
  }
  return found;
}

const PLAIN = pixels(1);
const INK = pixels(0.55);

/** The colour of each pixel of the square of each kind, without alpha: kind, row, column. */
export const TABLE = new Uint32Array(64 * KINDS);
for (let at = 0; at < TABLE.length; at++) {
  const [kind, y, x] = [at >> 6, (at >> 3) & 7, at & 7];
  const dark = PATTERNS[kind].length > 0 && ((PATTERNS[kind][y] >> x) & 1) === 1;
  TABLE[at] = dark ? INK[kind] : PLAIN[kind];
}

const STYLE = `
.ddt-viewer { color: var(--jp-ui-font-color1, inherit); font: 13px/1.45 var(--jp-ui-font-family, system-ui, sans-serif); max-width: none; }
.ddt-viewer * { box-sizing: border-box; }
.ddt-viewer-bar { display: flex; flex-wrap: wrap; gap: 4px 10px; align-items: center; margin: 4px 0; }
.ddt-viewer-bar label { display: inline-flex; gap: 4px; align-items: center; }
.ddt-viewer input, .ddt-viewer select, .ddt-viewer button {
  font: inherit; color: inherit; background: transparent; border: 1px solid #808080; border-radius: 3px;
  padding: 2px 6px; min-height: 26px; }
.ddt-viewer option { background: Canvas; color: CanvasText; }
.ddt-viewer button { cursor: pointer; min-width: 26px; }
.ddt-viewer button:disabled { opacity: 0.6; cursor: default; }
.ddt-viewer input[type=search] { width: 18em; }
.ddt-viewer input[type=text] { width: 7em; }
.ddt-viewer select { max-width: 18em; }
.ddt-viewer-chart { position: relative; width: 100%; overflow: hidden; touch-action: pan-y; cursor: grab; }
.ddt-viewer-chart:active { cursor: grabbing; }
.ddt-viewer-chart canvas { display: block; position: absolute; inset: 0; width: 100%; height: 100%; }
.ddt-viewer :focus-visible { outline: 2px solid #0072B2; outline-offset: 1px; }
.ddt-viewer-tip {
  position: absolute; pointer-events: none; max-width: min(34em, 90%); padding: 2px 8px; border: 1px solid #808080;
  background: var(--jp-layout-color1, Canvas); color: var(--jp-ui-font-color1, CanvasText); overflow-wrap: anywhere; }
.ddt-viewer p { margin: 3px 0; overflow-wrap: anywhere; }
.ddt-viewer-picked { min-height: 3em; }
.ddt-viewer-keys { margin: 2px 0; }
.ddt-viewer-keys dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 12px; margin: 2px 0; }
.ddt-viewer-keys dt { float: none; width: auto; white-space: nowrap; }
.ddt-viewer-keys dd { margin: 0; }
.ddt-viewer-legend { display: flex; flex-wrap: wrap; gap: 2px 14px; margin: 3px 0; padding: 0; list-style: none; }
.ddt-viewer-legend li { display: inline-flex; gap: 5px; align-items: center; margin: 0; }
.ddt-viewer-legend canvas { width: 24px; height: 12px; }
.ddt-picked { outline: 2px solid currentColor; outline-offset: -2px; font-weight: bold; }
@media (forced-colors: active) { .ddt-viewer :focus-visible, .ddt-picked { outline-color: Highlight; } }
`;

let sheet: CSSStyleSheet | null = null;

/** Add the style sheet to a page, once; a page whose policy forbids style elements allows this one. */
export function addStyle(page: Document): void {
  if (!sheet) {
    sheet = new CSSStyleSheet();
    sheet.replaceSync(STYLE);
  }
  if (!page.adoptedStyleSheets.includes(sheet)) {
    page.adoptedStyleSheets = [...page.adoptedStyleSheets, sheet];
  }
}
