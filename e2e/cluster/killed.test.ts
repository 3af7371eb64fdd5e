import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { describe, expect, it } from "vitest";
import { eventually } from "../support/poll.ts";
import { addressesOf } from "./harness/addresses.ts";
import { belongings } from "./harness/remains.ts";
import { whyNoCluster } from "./harness/requirements.ts";
import { z } from "zod";

const message = z.object({ slot: z.number(), folder: z.string() });

describe.skipIf(whyNoCluster() !== undefined)("a test cluster whose starter is killed", () => {
  it("is removed", async () => {
    const script = join(import.meta.dirname, "harness/holder.ts");
    const child = spawn(process.execPath, [script], { stdio: ["ignore", "pipe", "inherit"] });
    try {
      const [line] = (await once(createInterface(child.stdout), "line", { signal: AbortSignal.timeout(100_000) })) as [
        string,
      ];
      const { slot, folder } = message.parse(JSON.parse(line));
      expect(await belongings(addressesOf(slot), folder)).not.toEqual([]);
      child.kill("SIGKILL");
      await eventually(
        async () => {
          expect(await belongings(addressesOf(slot), folder)).toEqual([]);
        },
        { deadlineMs: 60_000, everyMs: 200 },
      );
    } finally {
      child.kill("SIGKILL");
    }
  });
});
