import { readFile, stat } from "node:fs/promises";
import { dirname } from "node:path";

/** Devices ("major:minor") of all that a process sees mounted, by its mountinfo. */
export function mountedDevices(mountinfo: string): Set<string> {
  return new Set(mountinfo.split("\n").map((line) => line.split(" ")[2] ?? ""));
}

/**
 * Whether a file system is mounted here at `source`, and the process sees it somewhere. Each volume is a file system of its
 * own; where it is for the program may be another path than it was named by, through links of the image.
 */
export async function seesMount(pid: number, source: string): Promise<boolean> {
  const [mountinfo, { dev }, around] = await Promise.all([
    readFile(`/proc/${pid}/mountinfo`, "utf8"),
    stat(source),
    stat(dirname(source)),
  ]);
  if (dev === around.dev) return false;
  // gnu_dev_major, gnu_dev_minor
  const major = (dev >>> 8) & 0xfff;
  const minor = (dev & 0xff) | ((dev >>> 12) & 0xfff00);
  return mountedDevices(mountinfo).has(`${major}:${minor}`);
}
