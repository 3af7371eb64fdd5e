import childProcess from "node:child_process";
import { existsSync, readdirSync, rmSync, statSync, writeSync } from "node:fs";
import files, { type FileHandle } from "node:fs/promises";
import http2 from "node:http2";
import { syncBuiltinESMExports } from "node:module";
import { join } from "node:path";
import { promisify } from "node:util";
import { Worker } from "node:worker_threads";
import { type CrashPoints } from "./points.ts";

type Call = (this: unknown, ...args: unknown[]) => unknown;

/** Change nothing but what their first argument names. */
const changing = [
  ...["appendFile", "chmod", "chown", "copyFile", "cp", "link", "mkdir", "mkdtemp", "rename", "rm", "rmdir"],
  ...["symlink", "truncate", "unlink", "utimes"],
];
/** These look: what they do to the kernel or a file is nothing. */
const lookingMethods = new Set([
  "nftList",
  "linkMtu",
  "slotIndices",
  "netnsUsable",
  "inspect",
  "measure",
  "heldUnlinkedBytes",
  "local",
  "snapshots",
  "below",
]);
const inFlightMs = 50;

function patch(owner: object, name: string, make: (original: Call) => Call): void {
  const functions = owner as Record<string, Call>;
  const original = functions[name];
  if (original === undefined) throw new Error(`there is no function ${name} to count`);
  functions[name] = make(original);
}

/** The kernel's files take one write each: half of a pid would be another process. */
function isKernels(path: string): boolean {
  return path.startsWith("/sys/") || path.startsWith("/proc/");
}

function writeHalf(fd: number, content: unknown): void {
  if (typeof content === "string" || content instanceof Uint8Array) {
    const bytes = Buffer.from(content);
    writeSync(fd, bytes.subarray(0, bytes.length / 2));
  }
}

function isFolder(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false;
}

/** As a removal that was cut off leaves it. */
function removeHalf(path: string): void {
  const below = readdirSync(path, { recursive: true, encoding: "utf8" });
  for (const name of below.slice(0, Math.ceil(below.length / 2))) {
    const entry = join(path, name);
    if (!isFolder(entry)) rmSync(entry, { force: true });
  }
}

/** Waits, without letting this thread do anything else, until `seen` or a bound. */
function spin(seen: () => boolean): void {
  const end = performance.now() + inFlightMs;
  while (performance.now() < end && !seen()) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 0.2);
}

function patchFiles(points: CrashPoints, handles: object): void {
  for (const name of changing) {
    patch(files, name, (original) => {
      return function (this: unknown, ...args) {
        const path = String(args[0]);
        points.reach(`${name} ${path}`);
        if (name === "rm" && isFolder(path)) {
          points.reach(`half of ${name} ${path}`, () => {
            removeHalf(path);
          });
        }
        return original.apply(this, args);
      };
    });
  }
  const paths = new WeakMap<object, string>();
  patch(files, "open", (original) => {
    return async function (this: unknown, ...args) {
      const path = String(args[0]);
      const flags = args[1] ?? "r";
      const writes = typeof flags === "string" && flags !== "r";
      if (writes) points.reach(`open ${path}`);
      const handle = (await original.apply(this, args)) as FileHandle;
      if (writes) paths.set(handle, path);
      return handle;
    };
  });
  patch(files, "writeFile", (original) => {
    return function (this: unknown, ...args) {
      const path = String(args[0]);
      points.reach(`writeFile ${path}`);
      return original.apply(this, args);
    };
  });
  for (const name of ["write", "writeFile", "sync", "datasync", "truncate"]) {
    patch(handles, name, (original) => {
      return function (this: unknown, ...args) {
        const handle = this as FileHandle;
        const path = paths.get(handle);
        if (path === undefined) return original.apply(this, args);
        points.reach(`${name} ${path}`);
        if (name.startsWith("write") && !isKernels(path)) {
          points.reach(`half of ${name} ${path}`, () => {
            writeHalf(handle.fd, args[0]);
          });
        }
        return original.apply(this, args);
      };
    });
  }
}

/** The subcommand is what tells one runsc from another. */
function commandOf(program: unknown, args: unknown): string {
  const name = String(program).split("/").at(-1) ?? "";
  const words = Array.isArray(args) ? args.map(String) : [];
  return [name, ...words.filter((word) => !word.startsWith("-") && !word.startsWith("/"))].join(" ").slice(0, 80);
}

/** runsc is started without node:child_process. */
async function patchChildren(points: CrashPoints): Promise<void> {
  const { Children } = await import("@substrate/atelet/sandbox/gvisor/children.ts");
  patch(Children.prototype, "start", (original) => {
    return function (this: unknown, ...args) {
      const { program, args: words } = args[0] as { program: string; args: string[] };
      const command = commandOf(program, words);
      points.reach(`spawn ${command}`);
      const child = original.apply(this, args);
      points.reach(`during ${command}`);
      return child;
    };
  });
}

function patchProcesses(points: CrashPoints): void {
  patch(childProcess, "spawn", (original) => {
    return function (this: unknown, ...args) {
      const command = commandOf(args[0], args[1]);
      points.reach(`spawn ${command}`);
      const child = original.apply(this, args);
      points.reach(`during ${command}`);
      return child;
    };
  });
  patch(childProcess, "execFile", (original) => {
    const custom = (original as unknown as Record<symbol, Call>)[promisify.custom];
    const counted = (call: Call): Call => {
      return function (this: unknown, ...args) {
        const command = commandOf(args[0], args[1]);
        points.reach(`execFile ${command}`);
        const result = call.apply(this, args);
        points.reach(`during ${command}`);
        return result;
      };
    };
    return Object.assign(counted(original), custom === undefined ? {} : { [promisify.custom]: counted(custom) });
  });
}

interface Message {
  method?: string;
  operation?: string;
  args?: unknown[];
  to?: string;
}

/** What is under way in a worker: a copy that has begun, a namespace that is half made. */
function inFlight({ method, args, to }: Message): void {
  const path = method === "createSlot" ? String(args?.[1]) : to;
  spin(() => path !== undefined && existsSync(path));
}

/** Threads: the network's kernel calls, copies into and out of a store, page cache. */
function patchWorkers(points: CrashPoints): void {
  patch(Worker.prototype, "postMessage", (original) => {
    return function (this: unknown, ...args) {
      const message = (args[0] ?? {}) as Message;
      const verb = message.method ?? message.operation ?? "copy";
      if (lookingMethods.has(verb)) return original.apply(this, args);
      const detail = [message.to ?? "", ...(message.args ?? [])].join(" ").replaceAll("\n", "; ").slice(0, 120);
      points.reach(`thread ${verb} ${detail}`);
      const result = original.apply(this, args);
      points.reach(`during thread ${verb} ${detail}`, () => {
        inFlight(message);
      });
      return result;
    };
  });
}

/** The answers to the operator and the routers: what was done, and they never hear of it. */
function patchAnswers(points: CrashPoints): void {
  const create = http2.createSecureServer.bind(http2) as (...args: unknown[]) => http2.Http2SecureServer;
  patch(http2, "createSecureServer", () => {
    return (...args) => {
      const server = create(...args);
      server.prependListener("stream", (stream, headers) => {
        const respond = stream.respond.bind(stream);
        stream.respond = (answer, options) => {
          points.reach(`answer to ${String(headers[":path"])}`);
          respond(answer, options);
        };
      });
      return server;
    };
  });
}

/** File, process, thread and answer: whatever the atelet does to the world. */
export async function patchAtelet(points: CrashPoints): Promise<void> {
  const handle = await files.open("/dev/null");
  const handles = Object.getPrototypeOf(handle) as object;
  await handle.close();
  patchFiles(points, handles);
  patchProcesses(points);
  await patchChildren(points);
  patchWorkers(points);
  patchAnswers(points);
  syncBuiltinESMExports();
}
