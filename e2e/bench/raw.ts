import { execFileSync, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { open, rm } from "node:fs/promises";
import { request } from "node:http";
import { join } from "node:path";

import { writeBundle } from "@substrate/atelet/sandbox/gvisor/bundle.ts";
import { type SandboxSpec } from "@substrate/atelet/sandbox/sandbox.ts";

/** What the product is measured against: runsc alone, driven directly; only its bundle is the product's. */
export interface RawSandbox {
  runscPath: string;
  /** Absolute and short; its own, not the product's. */
  rootDir: string;
  spec: SandboxSpec;
  /** Where the program answers GET. */
  url: string;
  /** Puts address and route back on the interior eth0. Not timed. */
  putAddress: () => Promise<void>;
  /** Nothing is begun after it; what runs is ended by its own end, as half a command could leave what nobody finds. */
  signal?: AbortSignal;
}

/** The first request after a restore. */
export interface Ask {
  method: "GET" | "POST";
  path: string;
}

export interface RawSuspendTimes {
  pauseMs: number;
  checkpointMs: number;
  deleteMs: number;
  totalMs: number;
}

export interface RawResumeTimes {
  createMs: number;
  restoreMs: number;
  firstByteMs: number;
  totalMs: number;
}

const commandTimeoutMs = 120_000;
const answerTimeoutMs = 30_000;
const retryMs = 1;

async function runsc(raw: RawSandbox, args: readonly string[]): Promise<number> {
  // what was made is still removed
  if (args[0] !== "delete") raw.signal?.throwIfAborted();
  const begin = performance.now();
  // files, as in the product: an image remembers of what kind its standard streams were
  const stdout = await open(raw.spec.stdoutPath, "a", 0o600);
  const stderr = await open(raw.spec.stderrPath, "a", 0o600);
  try {
    await new Promise<void>((resolve, reject) => {
      const flags = [`--root=${raw.rootDir}`, "--overlay2=root:memory", "--platform=systrap", "--network=sandbox"];
      const child = spawn(raw.runscPath, [...flags, ...args], {
        stdio: ["ignore", stdout.fd, stderr.fd],
        timeout: commandTimeoutMs,
        killSignal: "SIGKILL",
      });
      child.once("error", reject);
      child.once("exit", (code, signal) => {
        if (code === 0) resolve();
        else reject(new Error(`runsc ${args.join(" ")}: ${code ?? signal ?? ""}, see ${raw.spec.stderrPath}`));
      });
    });
  } finally {
    await stdout.close();
    await stderr.close();
  }
  return performance.now() - begin;
}

function attempt(url: string, method: "GET" | "POST"): Promise<void> {
  return new Promise((resolve, reject) => {
    const call = request(url, { method, agent: false, timeout: answerTimeoutMs }, (response) => {
      response.resume();
      resolve();
    });
    call.once("timeout", () => call.destroy(new Error(`${url} did not answer within ${answerTimeoutMs} ms`)));
    call.once("error", reject);
    call.end();
  });
}

/** Asks until the first byte comes; the client runs already, its connections do not outlive a suspend. */
async function firstByte(raw: RawSandbox, { method, path }: Ask = { method: "GET", path: "" }): Promise<number> {
  const begin = performance.now();
  for (;;) {
    raw.signal?.throwIfAborted();
    try {
      await attempt(raw.url + path, method);
      return performance.now() - begin;
    } catch (error) {
      if (performance.now() - begin > answerTimeoutMs) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, retryMs));
  }
}

/** Starts the program and waits until it answers. */
export async function rawStart(raw: RawSandbox): Promise<void> {
  await writeBundle(raw.spec, { cpuQuota: false });
  await raw.putAddress();
  await runsc(raw, ["run", "--detach", `--bundle=${raw.spec.bundleDir}`, raw.spec.id]);
  await firstByte(raw);
}

/** pause + checkpoint --leave-running + delete --force. @param imageDir an empty folder. */
export async function rawSuspend(raw: RawSandbox, imageDir: string): Promise<RawSuspendTimes> {
  const { id } = raw.spec;
  const pauseMs = await runsc(raw, ["pause", id]);
  const checkpointMs = await runsc(raw, ["checkpoint", "--leave-running", `--image-path=${imageDir}`, id]);
  const deleteMs = await runsc(raw, ["delete", "--force", id]);
  return { pauseMs, checkpointMs, deleteMs, totalMs: pauseMs + checkpointMs + deleteMs };
}

/** create + restore --background into a fresh sandbox + first byte. */
export async function rawResume(raw: RawSandbox, imageDir: string): Promise<RawResumeTimes> {
  const { id, bundleDir } = raw.spec;
  await raw.putAddress();
  const createMs = await runsc(raw, ["create", `--bundle=${bundleDir}`, id]);
  const restoreMs = await runsc(raw, [
    "--allow-live-tcp-migration=false",
    "restore",
    "--detach",
    "--background",
    `--bundle=${bundleDir}`,
    `--image-path=${imageDir}`,
    id,
  ]);
  const firstByteMs = await firstByte(raw);
  return { createMs, restoreMs, firstByteMs, totalMs: createMs + restoreMs + firstByteMs };
}

/** A sandbox that waits for an image: what a restore into a warm one finds. */
export async function rawCreate(raw: RawSandbox): Promise<void> {
  await runsc(raw, ["create", `--bundle=${raw.spec.bundleDir}`, raw.spec.id]);
}

/**
 * Milliseconds of restore into what `rawCreate` made, and the first byte.
 * @param options.background the program runs while its memory is loaded.
 * @param options.ask the first request; default a GET that touches little.
 */
export async function rawRestore(
  raw: RawSandbox,
  imageDir: string,
  options: { background: boolean; ask?: Ask },
): Promise<number> {
  const { id, bundleDir } = raw.spec;
  await raw.putAddress();
  const restoreMs = await runsc(raw, [
    "--allow-live-tcp-migration=false",
    "restore",
    "--detach",
    ...(options.background ? ["--background"] : []),
    `--bundle=${bundleDir}`,
    `--image-path=${imageDir}`,
    id,
  ]);
  return restoreMs + (await firstByte(raw, options.ask));
}

/** Milliseconds of a checkpoint after which the program goes on. @param imageDir an empty folder. */
export async function rawCheckpoint(raw: RawSandbox, imageDir: string): Promise<number> {
  return runsc(raw, ["checkpoint", "--leave-running", `--image-path=${imageDir}`, raw.spec.id]);
}

/** Waits until the background load has ended, so that the next measurement is not disturbed. */
export async function rawLoaded(raw: RawSandbox): Promise<void> {
  await runsc(raw, ["wait", "--restore", raw.spec.id]);
}

/** Ends the sandbox; its bundle stays. */
export async function rawEnd(raw: RawSandbox): Promise<void> {
  await runsc(raw, ["delete", "--force", raw.spec.id]);
}

/** Removes the sandbox and what runsc keeps for as long as its root is used. */
export async function rawClose(raw: RawSandbox): Promise<void> {
  await rawEnd(raw);
  await rm(raw.spec.bundleDir, { recursive: true, force: true });
  const mount = join(raw.rootDir, "null-netns");
  if (existsSync(mount)) execFileSync("umount", [mount]);
}
