import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { describe, expect, it } from "vitest";
import { partImages, type PartName } from "./table.ts";

const root = join(import.meta.dirname, "../..");

/** Scripts that a part starts by scriptUrl: name in an image, source. */
function startedScripts(part: PartName): [bundle: string, source: string][] {
  const folder = join(root, part, "src");
  return readdirSync(folder, { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".ts") && !name.endsWith(".test.ts"))
    .map((name) => join(folder, name))
    .flatMap((file) =>
      [...readFileSync(file, "utf8").matchAll(/new URL\("([^"]+)", import\.meta\.url\)(?:, "([^"]+)")?/g)].map(
        ([, source = "", bundle = "not by scriptUrl"]): [string, string] => [
          bundle,
          relative(root, resolve(dirname(file), source)),
        ],
      ),
    );
}

describe("the image of", () => {
  it.each(Object.keys(partImages) as PartName[])("the %s has every script that it starts", (part) => {
    const { bundles, main } = partImages[part];
    const started = Object.fromEntries(startedScripts(part));
    const { [main]: own, ...others } = bundles;
    expect(own).toBeDefined();
    expect(others).toEqual(started);
  });
});
