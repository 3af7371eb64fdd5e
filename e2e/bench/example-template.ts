import { type Template } from "@substrate/crds/index.ts";
import { renderExample } from "@substrate/examples/render.ts";
import { parseAllDocuments } from "yaml";

/** The example's own Template under another name. */
export async function exampleTemplate(program: string, image: string, golden: "Auto" | "Never"): Promise<Template> {
  const documents = parseAllDocuments(await renderExample(program, { image })).map((each) => each.toJS() as Template);
  const template = documents.find(({ kind }) => kind === "Template");
  if (template === undefined) throw new Error(`the example ${program} has no Template`);
  return {
    ...template,
    metadata: { name: `${program}-${golden.toLowerCase()}`, namespace: "default" },
    spec: { ...template.spec, snapshots: { ...template.spec.snapshots, golden, uploadDelay: "5m" } },
  };
}
