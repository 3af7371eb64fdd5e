import { cp, mkdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { build } from "esbuild";
import { type PartImage } from "./table.ts";

/** koffi finds its native module by path: it stays a package, without its sources and other systems' modules. */
const nativePackages = ["koffi", "@koromix/koffi-linux-x64"];
const nativeFiles: Readonly<Record<string, readonly string[]>> = {
  koffi: ["package.json", "index.js", "index.cjs", "src/koffi", "LICENSE.txt"],
  "@koromix/koffi-linux-x64": ["package.json", "index.js", "linux_x64"],
};

/** Bundled CommonJS packages require Node's own modules. */
const requireBanner =
  'import { createRequire as __createRequire } from "node:module"; const require = __createRequire(import.meta.url);';
/** Of a minified bundle: stack traces name a line that a person can read. */
const LINE_CHARACTERS = 160;

/**
 * Writes each bundle of a part, the licences of what is in it and its native packages into `folder`. Names of functions
 * stay, so that stack traces say what they mean without source maps.
 *
 * @param root of the checkout.
 */
export async function writeBundles(root: string, image: PartImage, folder: string): Promise<void> {
  await mkdir(folder, { recursive: true });
  await build({
    absWorkingDir: root,
    entryPoints: Object.entries(image.bundles).map(([file, source]) => ({
      in: source,
      out: file.replace(/\.mjs$/, ""),
    })),
    outdir: folder,
    outExtension: { ".js": ".mjs" },
    bundle: true,
    platform: "node",
    target: "node24",
    format: "esm",
    external: nativePackages,
    minifySyntax: true,
    minifyWhitespace: true,
    lineLimit: LINE_CHARACTERS,
    legalComments: "external",
    banner: { js: requireBanner },
    logLevel: "error",
  });
  // Node asks the nearest package.json what kind of modules these are
  await writeFile(join(folder, "package.json"), `${JSON.stringify({ private: true, type: "module" })}\n`);
  if (!image.native) return;
  for (const [name, files] of Object.entries(nativeFiles)) {
    for (const file of files) {
      const to = join(folder, "node_modules", name, file);
      await mkdir(dirname(to), { recursive: true });
      await cp(join(root, "node_modules", name, file), to, {
        recursive: true,
        filter: (path) => !/\.(cc|hh|inc)$/.test(path),
      });
    }
  }
}

/** Version of this checkout: what images are tagged with and the operator says of itself. */
export async function checkoutVersion(root: string): Promise<string> {
  const { version } = JSON.parse(await readFile(join(root, "package.json"), "utf8")) as { version: string };
  return version;
}
