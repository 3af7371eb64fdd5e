import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { yamlFiles } from "./all.ts";

const folder = join(import.meta.dirname, "../yaml");

/** Names of files that are not as they should be. */
async function differences(): Promise<string[]> {
  const files = yamlFiles();
  const present = await readdir(folder);
  const wrong = present.filter((name) => !files.some((file) => file.name === name));
  for (const { name, text } of files)
    if (!present.includes(name) || (await readFile(join(folder, name), "utf8")) !== text) wrong.push(name);
  return wrong;
}

const { values } = parseArgs({ options: { check: { type: "boolean", default: false } } });
await mkdir(folder, { recursive: true });
const wrong = await differences();
if (!values.check) {
  for (const name of wrong) await rm(join(folder, name), { force: true });
  for (const { name, text } of yamlFiles()) await writeFile(join(folder, name), text);
} else if (wrong.length > 0) {
  process.stderr.write(`crds/yaml differs from crds/src in ${wrong.join(", ")}: run "npm run gen" and commit\n`);
  process.exitCode = 1;
}
