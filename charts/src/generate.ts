import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { parseArgs } from "node:util";
import { generatedFiles } from "./all.ts";

const root = join(import.meta.dirname, "../..");
/** Nothing but what is generated is in these. */
const ownFolders = ["crds", "policies", "rbac"].map((name) => `charts/substrate/templates/${name}`);

const generated = generatedFiles();

async function contentOf<T>(read: () => Promise<T>, missing: T): Promise<T> {
  try {
    return await read();
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return missing;
    throw error;
  }
}

/** Paths of files that are not as they should be, those that should not be there among them. */
async function differences(): Promise<string[]> {
  const present = await Promise.all(
    ownFolders.map(async (folder) => {
      const names = await contentOf(() => readdir(join(root, folder)), []);
      return names.map((name) => `${folder}/${name}`);
    }),
  );
  const wrong = present.flat().filter((path) => !generated.some((file) => file.path === path));
  for (const { path, text } of generated) {
    if ((await contentOf(() => readFile(join(root, path), "utf8"), undefined)) !== text) wrong.push(path);
  }
  return wrong;
}

const { values } = parseArgs({ options: { check: { type: "boolean", default: false } } });
const wrong = await differences();
if (!values.check) {
  for (const path of wrong) await rm(join(root, path), { force: true });
  for (const { path, text } of generated) {
    await mkdir(dirname(join(root, path)), { recursive: true });
    await writeFile(join(root, path), text);
  }
} else if (wrong.length > 0) {
  process.stderr.write(`${wrong.join(", ")} is not as generated: run "npm run gen" and commit\n`);
  process.exitCode = 1;
}
