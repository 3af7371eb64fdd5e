import { mkdtemp, rm } from "node:fs/promises";
import { join } from "node:path";

import { buildCounter } from "@substrate/examples/programs.ts";

import { buildGlutton } from "../programs/glutton.ts";
import { tools } from "../support/tools.ts";
import { SandboxRig } from "./rig.ts";

/** A rig with the tools of the setup and the programs of this checkout. @param signal gives their build up. */
export async function openRig(signal?: AbortSignal): Promise<SandboxRig> {
  const dir = await mkdtemp("/tmp/sbx-build-");
  try {
    await buildGlutton(join(dir, "glutton"), signal);
    await buildCounter(join(dir, "counter"), signal);
    return await SandboxRig.open({
      runsc: tools.runsc,
      programs: { glutton: join(dir, "glutton/bin/glutton"), counter: join(dir, "counter/bin/counter") },
    });
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}
