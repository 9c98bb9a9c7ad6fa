// Notes from which sources the bundle was built, so that a test without Node can tell a stale one.
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';

const files = ['package.json', 'package-lock.json', 'tsconfig.json', 'viewer.mjs', 'webpack.config.js'];
for (const folder of ['schema', 'src', 'src/viewer', 'style']) {
  const entries = readdirSync(folder, { withFileTypes: true });
  files.push(...entries.filter(entry => entry.isFile()).map(entry => `${folder}/${entry.name}`));
}
const hash = createHash('sha256');
for (const file of files.sort()) {
  hash.update(file).update('\0').update(readFileSync(file)).update('\0');
}
writeFileSync('../ddt_notebook/labextension/sources.sha256', `${hash.digest('hex')}\n`);
