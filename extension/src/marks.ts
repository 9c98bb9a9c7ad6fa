/** Marks a cell with how it ran and on which ranks, and its lines with the ranks that were there. */

import { StateEffect, StateField } from '@codemirror/state';
import { Decoration, DecorationSet, EditorView, WidgetType } from '@codemirror/view';
import { CodeCell } from '@jupyterlab/cells';
import { CodeMirrorEditor } from '@jupyterlab/codemirror';

import { rankNames } from './ranks';
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

/** Notes at the ends of lines; a change of the code removes them, since they were about the old code. */
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

/** Mark a cell with how its run ended, and on which ranks it ran. */
export function badge(cell: CodeCell, outcome: Outcome | 'found', rows: IRow[]): void {
  clear(cell);
  const [sign, word, colour] = OUTCOMES[outcome];
  const ranks = rows.filter(row => row.asked).flatMap(row => row.ranks);
  const node = document.createElement('div');
  node.className = BADGE;
  node.textContent = `${sign} ${word} · ${rankNames(ranks)}`;
  node.style.borderLeftColor = colour;
  cell.inputArea?.node.append(node);
}

/** Mark lines with the ranks that were there. */
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

/** Remove the marks of a cell. */
export function clear(cell: CodeCell): void {
  cell.inputArea?.node.querySelectorAll(`.${BADGE}`).forEach(node => node.remove());
  const editor = cell.editor;
  if (editor instanceof CodeMirrorEditor && editor.editor.state.field(notes, false)) {
    editor.editor.dispatch({ effects: setNotes.of(Decoration.none) });
  }
}
