import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { yamlFiles } from "./all.ts";
import { apiReference } from "./reference.ts";

const root = join(import.meta.dirname, "../..");
const yamlFolder = "crds/yaml";

/** Everything that is made from crds/src, with its path below the root. */
const generated = [
  ...yamlFiles().map(({ name, text }) => ({ path: `${yamlFolder}/${name}`, text })),
  { path: "docs/reference/api.md", text: apiReference() },
];

async function isAsGenerated({ path, text }: { path: string; text: string }): Promise<boolean> {
  try {
    return (await readFile(join(root, path), "utf8")) === text;
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return false;
    throw error;
  }
}

/** Paths of files that are not as they should be, those that should not be there among them. */
async function differences(): Promise<string[]> {
  const present = (await readdir(join(root, yamlFolder))).map((name) => `${yamlFolder}/${name}`);
  const wrong = present.filter((path) => !generated.some((file) => file.path === path));
  for (const file of generated) if (!(await isAsGenerated(file))) wrong.push(file.path);
  return wrong;
}

const { values } = parseArgs({ options: { check: { type: "boolean", default: false } } });
await mkdir(join(root, yamlFolder), { recursive: true });
const wrong = await differences();
if (!values.check) {
  for (const path of wrong) await rm(join(root, path), { force: true });
  for (const { path, text } of generated) await writeFile(join(root, path), text);
} else if (wrong.length > 0) {
  process.stderr.write(`${wrong.join(", ")} differs from crds/src: run "npm run gen" and commit\n`);
  process.exitCode = 1;
}
