import { spawn } from "node:child_process";
import { mkdir } from "node:fs/promises";
import { join, resolve } from "node:path";
import { text } from "node:stream/consumers";
import { imageCache } from "./config.ts";
import { imageFiles } from "./image-files.ts";
import { buildOciLayout, DEFAULT_PATH, type ImageFile, type OciLayout } from "./oci.ts";
import { systemNode } from "./system-node.ts";
import { systemPython } from "./system-python.ts";
import { systemTools } from "./system-tools.ts";

/** A cold build of the standard library on two busy cores takes about a minute. */
const buildTimeoutMs = 300_000;

/** `go build` in a session of its own: Ctrl-C in the terminal reaches the caller alone, which ends it by `signal`. */
async function goBuild(sourceDir: string, binary: string, signal: AbortSignal | undefined): Promise<void> {
  const args = ["build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", binary, "."];
  const child = spawn("env", ["CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "go", ...args], {
    cwd: sourceDir,
    stdio: ["ignore", "ignore", "pipe"],
    detached: true,
    timeout: buildTimeoutMs,
    signal,
  });
  const ended = Promise.withResolvers<string>();
  child.once("error", ended.reject);
  child.once("close", (code, killedBy) => {
    ended.resolve(String(code ?? killedBy));
  });
  const [how, said] = await Promise.all([ended.promise, text(child.stderr)]);
  if (how === "127") throw new Error(`building ${sourceDir} failed: Go is not on PATH`);
  if (how !== "0") throw new Error(`building ${sourceDir} failed: go build ended with ${how}: ${said.trim()}`);
}

/**
 * Builds a Go program without dependencies into a static binary and an image that holds nothing else. Go's own cache
 * makes a repeated build cheap.
 *
 * @param options.outDir absolute; gets `bin/` and the OCI layout `image/`.
 * @param options.signal gives the build up.
 */
export async function buildGoImage(options: {
  name: string;
  sourceDir: string;
  port: number;
  outDir: string;
  signal?: AbortSignal | undefined;
}): Promise<OciLayout> {
  const { name, sourceDir, outDir } = options;
  const binary = join(outDir, "bin", name);
  await mkdir(join(outDir, "bin"), { recursive: true });
  await goBuild(sourceDir, binary, options.signal);
  return buildOciLayout({
    name,
    files: [{ path: `/bin/${name}`, mode: 0o755, source: binary }],
    config: { entrypoint: [`/bin/${name}`], exposedPorts: [`${options.port}/tcp`] },
    outDir: join(outDir, "image"),
  });
}

const examples = resolve(import.meta.dirname, "..");

/** An image of an interpreter and tools of this machine and the sources of one example, in /app. */
async function buildInterpreted(options: {
  name: string;
  main: string;
  interpreter: { files: ImageFile[]; env: string[]; program: string };
  outDir: string;
}): Promise<OciLayout> {
  const { name, main, interpreter, outDir } = options;
  const { files } = await imageFiles(`${join(examples, name)}:/app`, examples);
  const tools = await systemTools();
  // both have the C library
  const own = new Set(interpreter.files.map(({ path }) => path));
  return buildOciLayout({
    name,
    files: [
      ...interpreter.files,
      ...tools.files.filter(({ path }) => !own.has(path)),
      ...files.filter(({ path }) => /\.(py|mjs)$/.test(path)),
    ],
    config: {
      entrypoint: [interpreter.program, `/app/${main}`],
      env: [`PATH=${DEFAULT_PATH}`, ...interpreter.env],
      workingDir: "/app",
      exposedPorts: ["8080/tcp"],
    },
    outDir: join(outDir, "image"),
  });
}

/** The program of examples/python with this machine's Python. @param outDir absolute. */
export async function buildPython(outDir: string): Promise<OciLayout> {
  const interpreter = await systemPython(imageCache());
  return buildInterpreted({ name: "python", main: "app.py", interpreter, outDir });
}

/** The program of examples/node with the Node that runs this. @param outDir absolute. */
export async function buildNode(outDir: string): Promise<OciLayout> {
  return buildInterpreted({ name: "node", main: "app.mjs", interpreter: await systemNode(), outDir });
}

/** The program of examples/counter. @param outDir absolute; reused by later builds. @param signal gives the build up. */
export function buildCounter(outDir: string, signal?: AbortSignal): Promise<OciLayout> {
  const sourceDir = join(examples, "counter");
  return buildGoImage({ name: "counter", sourceDir, port: 8080, outDir, signal });
}
