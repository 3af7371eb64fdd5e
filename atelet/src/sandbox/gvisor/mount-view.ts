import { readFile, stat } from "node:fs/promises";

/** The newest mount at a place, by a process's own mountinfo; undefined if there is none. */
export function topmostDevice(mountinfo: string, destination: string): string | undefined {
  const found = mountinfo.split("\n").flatMap((line) => {
    const [, , device, , mountPoint] = line.split(" ");
    // runsc puts all mounts of a sandbox into one folder of its file server, whatever its name
    return device !== undefined && mountPoint?.endsWith(destination) === true ? [device] : [];
  });
  return found.at(-1);
}

/** Whether the process sees at `destination`, below whatever root, the file system that is mounted here at `source`. */
export async function seesMount(pid: number, destination: string, source: string): Promise<boolean> {
  const [mountinfo, { dev }] = await Promise.all([readFile(`/proc/${pid}/mountinfo`, "utf8"), stat(source)]);
  const major = ((dev >>> 8) & 0xfff) | 0;
  const minor = (dev & 0xff) | ((dev >>> 12) & 0xfff00);
  return topmostDevice(mountinfo, escaped(destination)) === `${major}:${minor}`;
}

/** As the kernel writes paths there. */
function escaped(path: string): string {
  return path.replaceAll(/[\s\\]/g, (character) => `\\${character.charCodeAt(0).toString(8).padStart(3, "0")}`);
}
