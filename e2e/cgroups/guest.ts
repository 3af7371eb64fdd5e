import { spawn } from "node:child_process";
import { once } from "node:events";

import { type GuestImage } from "./guest-image.ts";
import { type GuestTools } from "./guest-tools.ts";
import { type GuestResult, RESULT_MARK } from "./inside/place.ts";

const memoryMiB = 2048;

export interface GuestRun {
  results: GuestResult[];
  /** All that it said on its console. */
  console: string;
}

/** Boots the guest, lets it run its checks and switch itself off. Without KVM: an emulated machine, so slow. */
export async function runGuest(tools: GuestTools, image: GuestImage, deadlineMs: number): Promise<GuestRun> {
  const child = spawn(
    "env",
    [
      `LD_LIBRARY_PATH=${tools.libraries}`,
      tools.qemu,
      ...tools.firmware.flatMap((folder) => ["-L", folder]),
      ...["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", `${memoryMiB}`],
      ...["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio"],
      ...["-kernel", tools.kernel, "-initrd", image.initramfs],
      ...["-append", "console=ttyS0 quiet panic=-1 mitigations=off"],
      ...["-drive", `file=${image.disk},format=raw,if=virtio,cache=unsafe`],
    ],
    {
      stdio: ["ignore", "pipe", "pipe"],
      timeout: deadlineMs,
      killSignal: "SIGKILL",
    },
  );
  let said = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.on("data", (text: Buffer) => (said += text.toString()));
  }
  await once(child, "close");
  const results = said
    .split(/\r?\n/)
    .filter((line) => line.startsWith(RESULT_MARK))
    .map((line) => JSON.parse(line.slice(RESULT_MARK.length)) as GuestResult);
  return { results, console: said };
}
