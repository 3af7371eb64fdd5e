import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { type OciLayout } from "@substrate/examples/oci.ts";
import { buildCounter, buildNode, buildPython } from "@substrate/examples/programs.ts";
import { afterAll, beforeAll, expect, it } from "vitest";
import { openRig } from "../sandbox/open-rig.ts";
import { answer, type Place, type SandboxRig } from "../sandbox/rig.ts";
import { eventually } from "../support/poll.ts";
import { unpack } from "./unpack.ts";

let rig: SandboxRig;
beforeAll(async () => {
  rig = await openRig();
});
afterAll(async () => {
  await rig.close();
});

interface Program {
  name: string;
  build: (outDir: string) => Promise<OciLayout>;
  args: string[];
  /** Where it shows its random numbers. */
  path: string;
}

const programs: Program[] = [
  { name: "counter", build: buildCounter, args: ["/bin/counter"], path: "/" },
  { name: "python", build: buildPython, args: ["/usr/bin/python3", "/app/app.py", "--values=1000"], path: "/random" },
  { name: "node", build: buildNode, args: ["/usr/bin/node", "/app/app.mjs"], path: "/random" },
];

/** What must not be the same in two copies. */
async function randomOf(place: Place, path: string): Promise<Record<string, unknown>> {
  const all = JSON.parse(await answer(place, "GET", path)) as Record<string, unknown>;
  return Object.fromEntries(
    ["copy", "random", "python", "openssl", "kernel"].filter((key) => key in all).map((key) => [key, all[key]]),
  );
}

it.each(programs)("two copies of one snapshot of examples/$name share no random number", async (program) => {
  const { name, build, args, path } = program;
  const outDir = join(rig.dir, "examples", name);
  const root = join(rig.dir, "examples", `${name}-root`);
  mkdirSync(outDir, { recursive: true });
  unpack(await build(outDir), root);
  const places = [await rig.place("counter", { memoryMiB: 256 }), await rig.place("counter", { memoryMiB: 256 })];
  for (const { spec } of places) Object.assign(spec, { rootfsDir: root, args, env: ["PATH=/bin"] });
  const [first, second] = places;
  if (first === undefined || second === undefined) throw new Error("two places were asked for");

  await rig.start(first);
  const before = await randomOf(first, path);
  const imageDir = await rig.imageDir(name);
  await rig.runtime.pause(first.spec.id);
  await rig.runtime.checkpoint(first.spec.id, imageDir, { direct: false });
  await rig.runtime.delete(first.spec.id);
  await rig.cgroups.remove(first.spec.id);

  const seen = [before];
  for (const place of places) {
    await rig.cgroups.create(place.spec.id);
    await place.putAddress();
    await rig.runtime.restore(place.spec, { imageDir, direct: false, keepConnections: false });
    // the notice comes with the start, not before it
    await eventually(
      async () => {
        expect((await randomOf(place, path)).copy).not.toBe(before.copy);
      },
      { deadlineMs: 10_000, everyMs: 20 },
    );
    seen.push(await randomOf(place, path));
    await rig.runtime.waitRestored(place.spec.id);
  }
  for (const place of places) await rig.runtime.delete(place.spec.id);
  const values = seen.flatMap((random) => Object.values(random));
  expect(values).toHaveLength(3 * Object.keys(before).length);
  expect(new Set(values).size).toBe(values.length);
});
