import { existsSync, readdirSync } from "node:fs";
import { basename, join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { callersFolder, imageCache } from "./config.ts";
import { checkImageCommand } from "./image-command.ts";
import { imageFiles, type ImageSource } from "./image-files.ts";
import { buildOciLayout, DEFAULT_PATH, type ImageFile } from "./oci.ts";
import { systemNode } from "./system-node.ts";
import { systemPython } from "./system-python.ts";
import { systemTools, toolNames } from "./system-tools.ts";

const help = `npm run image -- --out DIR [OPTION]… SOURCE[:DEST]… -- COMMAND [ARG]…

Makes an image from files, without a registry, and prints its reference for the \`image\` of a Template. It can be used
on clusters of \`npm start\` on this machine, as long as DIR is there.

  SOURCE[:DEST]    a file, or a folder's contents, and where it lies in the image (default: /)
  COMMAND [ARG]…   what the image runs; a Template's \`args\` replace the ARGs
  --out DIR        the image's folder (an OCI layout); images that are already in it stay
  --env K=V        a variable of the program's environment; may be repeated
  --workdir DIR    where the program starts in the image (default: /)
  --user UID[:GID] whom it runs as (default: 0)
  --port N         a port that it listens on, for those who inspect the image; may be repeated
  --python         the Python of this machine (3, with SQLite and TLS) goes into the image, as python3
  --node           likewise the Node of this checkout, as node
  --tools          a shell and tar, for kubectl ate exec and cp, go into it: ${toolNames.join(", ")}
  --help           this text

A static binary:         npm run image -- --out ~/hello/image ~/hello/hello -- /hello
A Python program:        npm run image -- --out ~/py/image --python ~/app:/srv -- python3 /srv/main.py
A root file system:      npm run image -- --out ~/py/image --env LANG=C.UTF-8 ~/py/rootfs ~/app:/srv -- python3 /srv/main.py
`;

class UsageError extends Error {}

function environment(values: readonly string[]): string[] {
  for (const value of values) {
    if (!/^[A-Za-z_][A-Za-z0-9_]*=/.test(value)) throw new UsageError(`--env ${value}: write NAME=VALUE`);
  }
  return values.some((value) => value.startsWith("PATH=")) ? [...values] : [`PATH=${DEFAULT_PATH}`, ...values];
}

function ports(values: readonly string[]): string[] {
  for (const value of values) {
    if (!/^\d{1,5}$/.test(value) || Number(value) < 1 || Number(value) > 65_535)
      throw new UsageError(`--port ${value}: a port is a number from 1 to 65535`);
  }
  return values.map((value) => `${value}/tcp`);
}

/** A folder that holds something else is left alone. */
function outFolder(out: string, sources: readonly ImageSource[]): string {
  if (existsSync(out) && readdirSync(out).length > 0 && !existsSync(join(out, "oci-layout"))) {
    throw new UsageError(`--out ${out} holds something else: name a new or empty folder`);
  }
  const around = sources.find(({ source }) => `${out}/`.startsWith(`${source}/`))?.source;
  if (around !== undefined)
    throw new UsageError(`--out ${out} lies in ${around}, which goes into the image: name a folder outside of it`);
  return out;
}

async function main(argv: readonly string[]): Promise<void> {
  const end = argv.indexOf("--");
  const [program, ...args] = end < 0 ? [] : argv.slice(end + 1);
  const { values, positionals } = parseArgs({
    args: end < 0 ? [...argv] : argv.slice(0, end),
    allowPositionals: true,
    options: {
      out: { type: "string" },
      env: { type: "string", multiple: true, default: [] },
      port: { type: "string", multiple: true, default: [] },
      workdir: { type: "string", default: "/" },
      user: { type: "string" },
      python: { type: "boolean", default: false },
      node: { type: "boolean", default: false },
      tools: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) {
    process.stdout.write(help);
    return;
  }
  if (values.out === undefined) throw new UsageError("--out DIR is missing (npm's own -- comes before it)");
  if (positionals.length === 0) throw new UsageError("there is no SOURCE: name the files that the image is made of");
  if (program === undefined) throw new UsageError("there is no COMMAND: write it after another --, at the end");
  if (!values.workdir.startsWith("/")) throw new UsageError(`--workdir ${values.workdir} must be absolute`);

  const cwd = callersFolder();
  const additions = [
    ...(values.python ? [await systemPython(imageCache())] : []),
    ...(values.node ? [await systemNode()] : []),
    ...(values.tools ? [await systemTools()] : []),
  ];
  const sources = await Promise.all(positionals.map((argument) => imageFiles(argument, cwd)));
  // a later SOURCE replaces what an earlier one put at the same place
  const files = [
    ...new Map<string, ImageFile>(
      [...additions, ...sources].flatMap((source) => source.files).map((file) => [file.path, file]),
    ).values(),
  ];
  const outDir = outFolder(resolve(cwd, values.out), sources);
  const env = [...additions.flatMap(({ env }) => env), ...environment(values.env)];
  const searchPath = env.findLast((entry) => entry.startsWith("PATH="))?.slice("PATH=".length) ?? DEFAULT_PATH;
  await checkImageCommand({ files, program, searchPath, workingDir: values.workdir });
  const { reference, layerBytes } = await buildOciLayout({
    name: basename(program),
    files,
    config: {
      entrypoint: [program],
      cmd: args,
      env,
      workingDir: values.workdir,
      exposedPorts: ports(values.port),
      ...(values.user === undefined ? {} : { user: values.user }),
    },
    outDir,
  });
  process.stderr.write(
    `${files.length} files and folders, ${(layerBytes / 2 ** 20).toFixed(1)} MiB; for a Template:\n`,
  );
  process.stdout.write(`${reference}\n`);
}

try {
  await main(process.argv.slice(2));
} catch (error) {
  const { message } = error as Error;
  const isUsage = error instanceof UsageError || (error instanceof TypeError && "code" in error);
  process.stderr.write(`image: ${message}\n${isUsage ? `\n${help}` : ""}`);
  process.exitCode = 1;
}
