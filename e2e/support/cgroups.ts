import { readFile, rmdir } from "node:fs/promises";
import { join } from "node:path";

import { cgroupHierarchies } from "@substrate/local/pod/pod-cgroup.ts";

async function mounted(): Promise<ReturnType<typeof cgroupHierarchies>> {
  return cgroupHierarchies(await readFile("/proc/self/mountinfo", "utf8"));
}

/** What a group's control file says, by its name on v1, with its controller, or on v2. */
export async function control(
  group: string,
  file: { v1: [controller: string, name: string]; v2: string },
): Promise<string> {
  const all = await mounted();
  const unified = all.find(({ controllers }) => controllers.includes("cgroup2"));
  const [controller, name] = file.v1;
  const hierarchy = unified ?? all.find(({ controllers }) => controllers.includes(controller));
  if (hierarchy === undefined) throw new Error(`the cgroup controller ${controller} is not mounted`);
  return (await readFile(join(hierarchy.path, group, unified === undefined ? name : file.v2), "utf8")).trim();
}

/** Removes an empty group, and what is not there in a hierarchy counts as removed. */
export async function removeGroup(group: string): Promise<void> {
  for (const { path } of await mounted()) {
    await rmdir(join(path, group)).catch((error: unknown) => {
      if (!(error instanceof Error && "code" in error && error.code === "ENOENT")) throw error;
    });
  }
}
