/** What is said at a cell: how it ran on which ranks, and at its lines who stood there. */

import { StateEffect, StateField } from '@codemirror/state';
import { Decoration, DecorationSet, EditorView, WidgetType } from '@codemirror/view';
import { CodeCell } from '@jupyterlab/cells';
import { CodeMirrorEditor } from '@jupyterlab/codemirror';

import { spans } from './magic';
import { IFindingPlace, IRow, Outcome } from './state';

const BADGE = 'ddt-lab-badge';
/** Sign, word and colour, as in the cells' outputs. */
const OUTCOMES: { [outcome in Outcome | 'found']: [string, string, string] } = {
  ok: ['✓', 'ok', '#009E73'],
  found: ['✖', 'ended with a fault', '#D55E00'],
  failed: ['✖', 'failed', '#D55E00'],
  hung: ['✖', 'hung', '#D55E00'],
  interrupted: ['■', 'interrupted', '#E69F00']
};
const NOT_ASKED = 'not asked';

class Note extends WidgetType {
  constructor(private readonly _text: string) {
    super();
  }

  eq(other: Note): boolean {
    return other._text === this._text;
  }

  toDOM(): HTMLElement {
    const node = document.createElement('span');
    node.className = 'ddt-lab-note';
    node.textContent = `◀ ${this._text}`;
    return node;
  }
}

const setNotes = StateEffect.define<DecorationSet>();

/** Notes at the ends of lines; a change of the code takes them away: they were about the old one. */
const notes = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update: (shown, transaction) => {
    for (const effect of transaction.effects) {
      if (effect.is(setNotes)) {
        return effect.value;
      }
    }
    return transaction.docChanged ? Decoration.none : shown;
  },
  provide: field => EditorView.decorations.from(field)
});

/** Say on which ranks a cell ran, and how that ended. */
export function badge(cell: CodeCell, outcome: Outcome | 'found', rows: IRow[]): void {
  clear(cell);
  const [sign, word, colour] = OUTCOMES[outcome];
  const ranks = rows.filter(row => row.state !== NOT_ASKED).flatMap(row => row.ranks);
  const node = document.createElement('div');
  node.className = BADGE;
  node.textContent = `${sign} ${word} · ${named(ranks)}`;
  node.style.borderLeftColor = colour;
  cell.inputArea?.node.append(node);
}

/** Say at the lines who stood there. */
export function annotate(cell: CodeCell, places: IFindingPlace[]): void {
  const editor = cell.editor;
  if (!(editor instanceof CodeMirrorEditor)) {
    return;
  }
  if (!editor.editor.state.field(notes, false)) {
    editor.injectExtension(notes);
  }
  const lines = new Map<number, Set<string>>();
  for (const { line, who } of places) {
    if (line !== null && who && line <= editor.editor.state.doc.lines) {
      lines.set(line, (lines.get(line) ?? new Set()).add(who));
    }
  }
  const shown = [...lines].map(([line, who]) => {
    const widget = new Note([...who].join('; '));
    return Decoration.widget({ widget, side: 1 }).range(editor.editor.state.doc.line(line).to);
  });
  editor.editor.dispatch({ effects: setNotes.of(Decoration.set(shown, true)) });
}

/** Take away what is said at a cell. */
export function clear(cell: CodeCell): void {
  cell.inputArea?.node.querySelectorAll(`.${BADGE}`).forEach(node => node.remove());
  const editor = cell.editor;
  if (editor instanceof CodeMirrorEditor && editor.editor.state.field(notes, false)) {
    editor.editor.dispatch({ effects: setNotes.of(Decoration.none) });
  }
}

/** `rank 0`, `ranks 0, 2-3`. */
export function named(ranks: number[]): string {
  return `${ranks.length === 1 ? 'rank' : 'ranks'} ${spans(ranks).join(', ')}`;
}
