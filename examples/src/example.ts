import { join } from "node:path";
import { parseArgs } from "node:util";
import { imageCache } from "./config.ts";
import { type OciLayout } from "./oci.ts";
import { buildCounter, buildNode, buildPython } from "./programs.ts";
import { renderExample } from "./render.ts";

const builders: Record<string, (outDir: string) => Promise<OciLayout>> = {
  counter: buildCounter,
  python: buildPython,
  node: buildNode,
};

const help = `npm run --silent example -- NAME | kubectl apply -f -

Makes the image of an example from what this machine has and prints its Template and Actor with it, for a cluster of
\`npm start\` on this machine. Images are kept in ${imageCache()}.

  counter   a Go program: a number in memory, one in a file
  python    a dict of a million values, SQLite and other open files on a volume
  node      a number in memory, a log on a volume
  --help    this text
`;

async function main(): Promise<void> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { help: { type: "boolean", default: false } },
  });
  const [name = ""] = positionals;
  if (values.help) {
    process.stdout.write(help);
    return;
  }
  const build = Object.hasOwn(builders, name) ? builders[name] : undefined;
  if (build === undefined || positionals.length !== 1) {
    throw new Error(`name one example: ${Object.keys(builders).join(", ")}`);
  }
  const { reference } = await build(join(imageCache(), name));
  process.stdout.write(await renderExample(name, { image: reference }));
}

try {
  await main();
} catch (error) {
  process.stderr.write(`example: ${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
}
