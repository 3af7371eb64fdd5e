import { readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { parseAllDocuments } from "yaml";

/**
 * The YAML of an example, ready for kubectl apply, with the image of each Template's first container set.
 *
 * @param name folder under examples/ that holds `<name>.yaml`.
 */
export async function renderExample(name: string, options: { image: string }): Promise<string> {
  const path = join(resolve(import.meta.dirname, ".."), name, `${name}.yaml`);
  const documents = parseAllDocuments(await readFile(path, "utf8"));
  if (!Array.isArray(documents)) throw new Error(`${path} is empty`);
  for (const document of documents) {
    if (document.errors[0]) throw new Error(`${path}: ${document.errors[0].message}`);
    if (document.get("kind") === "Template") document.setIn(["spec", "containers", 0, "image"], options.image);
  }
  return documents.map((document) => document.toString({ lineWidth: 0 })).join("");
}
