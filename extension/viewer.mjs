// Bundles the interactive viewer for pages and notebooks, with the licences of what is in it.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { build } from 'esbuild';

const made = await build({
  entryPoints: ['src/viewer/page.ts'],
  outfile: '../ddt_notebook/views/assets/viewer.js',
  bundle: true,
  minify: true,
  format: 'esm',
  target: 'es2020',
  legalComments: 'none',
  metafile: true,
  write: false
});
const packages = new Set(
  Object.keys(made.metafile.inputs).flatMap(file => /^node_modules\/([^/]+)\//.exec(file)?.slice(1) ?? [])
);
const licences = new Map();
for (const name of [...packages].sort()) {
  const text = readFileSync(`node_modules/${name}/LICENSE`, 'utf8').trim();
  licences.set(text, [...(licences.get(text) ?? []), name]);
}
const banner = [...licences].map(([text, names]) => `${names.join(', ')}:\n${text}`).join('\n\n');
mkdirSync(dirname(made.outputFiles[0].path), { recursive: true });
writeFileSync(made.outputFiles[0].path, `/*! It contains\n\n${banner}\n*/\n${made.outputFiles[0].text}`);
