import { readdirSync, readFileSync } from "node:fs";
import { type World } from "./world.ts";

interface SeenProcess {
  pid: number;
  parent: number;
  name: string;
  isZombie: boolean;
  words: string[];
}

/** Empty when the process has ended meanwhile. */
function read(pid: number, file: string): string {
  try {
    return readFileSync(`/proc/${pid}/${file}`, "latin1");
  } catch (error) {
    if (error instanceof Error && "code" in error && (error.code === "ENOENT" || error.code === "ESRCH")) return "";
    throw error;
  }
}

function processes(): SeenProcess[] {
  const pids = readdirSync("/proc").filter((name) => /^\d+$/.test(name));
  return pids.map(Number).flatMap((pid) => {
    const stat = read(pid, "stat");
    if (stat === "") return [];
    // proc(5): pid (comm) state ppid …; comm may contain anything
    const end = stat.lastIndexOf(")");
    const [state, parent] = stat.slice(end + 2).split(" ");
    const name = stat.slice(stat.indexOf("(") + 1, end);
    return { pid, parent: Number(parent), name, isZombie: state === "Z", words: read(pid, "cmdline").split("\0") };
  });
}

/** Of a running actor, or of one that waits for an actor: sandbox and gofer. */
const processesPerSandbox = 2;

/**
 * Below the supervisor there are the atelet and the sandboxes of running actors, whose programs are their own affair,
 * and nothing that has ended and waits to be reaped; no process of the runtime is anywhere else.
 */
export function* processViolations({ cluster, atelet, nodeActors, warm }: World): Generator<string> {
  const runtimeRoot = `${cluster.nodeDir}/runsc/`;
  const ids = [...warm, ...nodeActors.flatMap(({ sandboxId }) => sandboxId ?? [])];
  const all = processes();
  const ofRuntime = all.filter(({ words }) => words.some((word) => word.includes(runtimeRoot)));
  const isOf = (id: string, { words }: SeenProcess): boolean => words.some((word) => word.includes(id));
  for (const id of ids) {
    const own = ofRuntime.filter((one) => isOf(id, one));
    if (own.length !== processesPerSandbox)
      yield `sandbox ${id} has ${own.length} processes instead of ${processesPerSandbox}`;
  }
  const say = ({ pid, parent, name, words }: SeenProcess): string =>
    `${pid} (${name}, child of ${parent}) ${words.join(" ").slice(0, 200)}`;
  for (const one of ofRuntime)
    if (!ids.some((id) => isOf(id, one))) yield `process ${say(one)} belongs to no running actor`;

  const children = Map.groupBy(all, ({ parent }) => parent);
  const below = [...(children.get(cluster.pid("supervisor") ?? 0) ?? [])];
  for (const one of below) {
    if (one.isZombie) yield `process ${say(one)} has ended, and nobody waits for it`;
    const isSandbox = ofRuntime.includes(one);
    if (!isSandbox && one.pid !== atelet && !one.isZombie) yield `process ${say(one)} is left over`;
    if (!isSandbox) below.push(...(children.get(one.pid) ?? []));
  }
}
