import { copyFile, mkdir } from "node:fs/promises";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { toolSettings } from "@substrate/local/config.ts";
import { findTools } from "@substrate/local/tools/find.ts";
import { type BuiltImage, buildImages } from "./build.ts";
import { callersFolder } from "./config.ts";
import { run } from "./program.ts";
import { type ImageName, imageNames } from "./table.ts";

const help = `npm run images -- [OPTION]… [--only NAME…]

Builds the images of Substrate and of its examples from this checkout, with buildah and without Docker, and says where
their archives are. What has not changed is not built again.

  --only NAME…            of ${imageNames.join(", ")} (default: all)
  --archive DIR           also copies the archives to DIR, as NAME-TAG.tar; a node takes one with
                          ctr -n k8s.io images import NAME-TAG.tar
  --push REGISTRY/PREFIX  also pushes them, as REGISTRY/PREFIX/substrate/NAME:TAG, with the credentials of
                          ~/.docker/config.json; the chart's image.registry is then REGISTRY/PREFIX
  --insecure              the registry has no certificate that this machine trusts, or none at all
  --base IMAGE            stands on this image instead of Debian's packages; it must have glibc and libstdc++, and for
                          the atelet libnftables, nft, ip, tar, cp, du and umount
  --tag T                 default: the version of package.json
  --help                  this text
`;

const MIB = 1024 * 1024;

class UsageError extends Error {}

function named(values: readonly string[]): ImageName[] {
  return values.map((value) => {
    const name = imageNames.find((one) => one === value);
    if (name === undefined) throw new UsageError(`--only ${value}: there is no such image`);
    return name;
  });
}

async function push(image: BuiltImage, registry: string, insecure: boolean, signal: AbortSignal): Promise<string> {
  const { crane } = findTools(toolSettings());
  const reference = `${registry.replace(/\/+$/, "")}/${image.reference}`;
  await run(crane, ["push", ...(insecure ? ["--insecure"] : []), image.archive, reference], { signal });
  return reference;
}

function row(image: BuiltImage): string {
  const start = image.startMs === undefined ? "" : `, starts in ${image.startMs} ms`;
  return `${image.reference.padEnd(28)} ${(image.sizeBytes / MIB).toFixed(0).padStart(4)} MiB${start}`;
}

async function main(argv: readonly string[]): Promise<void> {
  const { values, positionals } = parseArgs({
    args: [...argv],
    allowPositionals: true,
    options: {
      only: { type: "string", multiple: true, default: [] as string[] },
      archive: { type: "string" },
      push: { type: "string" },
      insecure: { type: "boolean", default: false },
      base: { type: "string" },
      tag: { type: "string" },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) {
    process.stdout.write(help);
    return;
  }
  if (positionals.length > 0 && values.only.length === 0) {
    throw new UsageError(`${positionals.join(" ")}: write --only before the names of images`);
  }
  const names = named([...values.only, ...positionals]);
  if (values.tag !== undefined && !/^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$/.test(values.tag)) {
    throw new UsageError(`--tag ${values.tag}: letters, digits, dots, dashes and underscores, at most 128`);
  }
  const stop = new AbortController();
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    process.once(signal, () => {
      stop.abort(new Error(`ended by ${signal}`));
    });
  }
  const say = (line: string): void => void process.stderr.write(`${line}\n`);
  const images = await buildImages({
    ...(names.length > 0 && { names }),
    ...(values.tag !== undefined && { tag: values.tag }),
    ...(values.base !== undefined && { base: values.base }),
    say,
    signal: stop.signal,
  });
  for (const image of images) {
    process.stdout.write(`${row(image)}\n`);
    let { archive } = image;
    if (values.archive !== undefined) {
      const folder = resolve(callersFolder(), values.archive);
      await mkdir(folder, { recursive: true });
      archive = join(folder, `${image.name}-${image.reference.split(":").at(-1) ?? ""}.tar`);
      await copyFile(image.archive, archive);
    }
    process.stdout.write(`  ${archive}\n`);
    if (values.push !== undefined) {
      process.stdout.write(`  ${await push(image, values.push, values.insecure, stop.signal)}\n`);
    }
  }
}

try {
  await main(process.argv.slice(2));
} catch (error) {
  const { message } = error as Error;
  const isUsage = error instanceof UsageError || (error instanceof TypeError && "code" in error);
  process.stderr.write(`images: ${message}\n${isUsage ? `\n${help}` : ""}`);
  process.exitCode = 1;
}
