import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { afterAll, beforeAll, describe, expect, it } from "vitest";

import { toolSettings } from "@substrate/local/config.ts";

import { type GuestRun, runGuest } from "./guest.ts";
import { buildGuestImage } from "./guest-image.ts";
import { guestTools, type GuestTools } from "./guest-tools.ts";

/** Two busy cores (load 15 to 25) take six to ten minutes for all of it. */
const guestMs = 12 * 60_000;

/** The series of checks in inside/, and how many each tells. */
const series = {
  "the machine": 1,
  "local mode": 1,
  "a pod of local mode": 2,
  "a container without privileges": 1,
  "an atelet without privileges": 1,
  "a container in the machine's cgroup namespace": 1,
  "a pod in the machine's cgroup namespace": 2,
  "a container in a cgroup namespace of its own": 1,
  "a pod": 2,
  "an actor in a pod": 9,
} as const;

const wanted: GuestTools | string = await guestTools(join(toolSettings().cacheDir, "../guest")).catch(
  (error: unknown) => (error instanceof Error ? error.message : String(error)),
);
const reason = typeof wanted === "string" ? ` (no emulated machine: ${wanted})` : "";

describe.skipIf(typeof wanted === "string")(`cgroup v2 in an emulated machine${reason}`, () => {
  let dir: string;
  let run: GuestRun;
  beforeAll(async () => {
    if (typeof wanted === "string") return;
    dir = await mkdtemp(join(tmpdir(), "substrate-guest-"));
    run = await runGuest(wanted, await buildGuestImage(dir, wanted), guestMs);
  }, guestMs + 120_000);
  afterAll(async () => {
    await rm(dir, { recursive: true, force: true });
  });

  it.each(Object.entries(series))("%s", (name, count) => {
    const own = run.results.filter((result) => result.name.startsWith(`${name}: `));
    expect(own.filter(({ error }) => error !== undefined)).toEqual([]);
    expect(own.length, `it ended early; its console said: ${run.console.slice(-4000)}`).toBe(count);
  });
});
