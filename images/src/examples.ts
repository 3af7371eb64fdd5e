import { join } from "node:path";
import { buildCounter, buildNode, buildPython } from "@substrate/examples/programs.ts";
import { type OciLayout } from "@substrate/examples/oci.ts";
import { keyOf, programState, sourcesHash } from "./inputs.ts";
import { type ExampleName } from "./table.ts";

const builders: Readonly<Record<ExampleName, (folder: string) => Promise<OciLayout>>> = {
  counter: (folder) => buildCounter(folder),
  python: buildPython,
  node: buildNode,
};

/** Programs of this machine that go into the images of the interpreted ones. */
const systemPrograms: Readonly<Record<ExampleName, readonly string[]>> = {
  counter: [],
  python: ["/usr/bin/python3", "/bin/sh", "/bin/tar"],
  node: [process.execPath, "/bin/sh", "/bin/tar"],
};

/** Changes with anything that decides what the example's image is. */
export async function exampleKey(root: string, name: ExampleName): Promise<string> {
  const programs = await Promise.all(systemPrograms[name].map((path) => programState(path)));
  return keyOf(name, await sourcesHash(root, ["images/src", "examples/src", join("examples", name)]), programs);
}

/** Builds the example's image as `npm start` would. @returns a reference that buildah reads. */
export async function buildExample(name: ExampleName, folder: string): Promise<string> {
  const { reference } = await builders[name](folder);
  return `oci:${reference.slice("oci:".length).replace(/@.*/, "")}`;
}
