import { chmod, mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { NotStartedError } from "@substrate/atelet/sandbox/sandbox.ts";
import { afterAll, beforeAll, expect, it } from "vitest";
import { openRig } from "./open-rig.ts";
import { type SandboxRig } from "./rig.ts";

let rig: SandboxRig;
beforeAll(async () => {
  rig = await openRig();
  const dir = join(rig.dir, "rootfs", "odd");
  await mkdir(dir, { recursive: true });
  await writeFile(join(dir, "data"), "no program\n", { mode: 0o644 });
  await writeFile(join(dir, "garbage"), "no program\n");
  await chmod(join(dir, "garbage"), 0o755);
});
afterAll(async () => {
  await rig.close();
});

it.each([
  [["pythn3", "-m", "x"], "/", 'there is no program "pythn3" in the image (PATH /usr/bin:/bin): '],
  [["/odd/nosuch"], "/", 'there is no program "/odd/nosuch" in the image, or '],
  [["/odd/data"], "/", '"/odd/data" may not be executed '],
  [["/odd"], "/", '"/odd" may not be executed '],
  [["/odd/garbage"], "/", '"/odd/garbage" is no program that this node can run '],
  [["/odd/garbage"], "/odd/data", 'its working directory "/odd/data" can\'t be used '],
])("a program that cannot be started is named with the cause, without the runtime's steps: %s in %s", async (...is) => {
  const [args, cwd, message] = is;
  const { spec } = await rig.place("counter", { memoryMiB: 128 });
  const failed = rig.runtime.run({ ...spec, args, cwd, env: ["PATH=/usr/bin:/bin"] });
  await expect(failed).rejects.toBeInstanceOf(NotStartedError);
  await expect(failed).rejects.toThrow(message);
  await expect(failed).rejects.not.toThrow(/runsc|sandbox/);
});
