import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { type LocalCluster, startLocalCluster } from "@substrate/local/cluster.ts";
import { belongings, podRoutes } from "../support/leftovers.ts";
import { eventually } from "../support/poll.ts";
import { tools } from "../support/tools.ts";

/** Starts a cluster in a process of its own, prints its id and stays until it is killed. */
const holder = join(import.meta.dirname, "holder.ts");

describe("a local cluster", () => {
  let stateDir: string;
  let cluster: LocalCluster | undefined;

  beforeEach(() => {
    stateDir = mkdtempSync(join(tmpdir(), "sub-"));
  });
  afterEach(async () => {
    await cluster?.stop();
    cluster = undefined;
    rmSync(stateDir, { recursive: true, force: true });
  });

  async function start(): Promise<LocalCluster> {
    cluster = await startLocalCluster({ stateDir, tools, fsync: false, say: () => undefined });
    return cluster;
  }

  function kubectl(...args: string[]): string {
    const { stdout, stderr, status } = spawnSync(
      tools.kubectl,
      ["--kubeconfig", join(stateDir, "kubeconfig"), ...args],
      {
        encoding: "utf8",
      },
    );
    if (status !== 0) throw new Error(`kubectl ${args.join(" ")}: ${stderr}`);
    return stdout;
  }

  it("runs its parts with rights of their own, is alone on its folder and leaves nothing", async () => {
    const running = await start();
    const can = (part: string, ...question: string[]): boolean => {
      const user = `--as=system:serviceaccount:substrate-system:${part}`;
      return (
        spawnSync(tools.kubectl, ["--kubeconfig", running.kubeconfig, user, "auth", "can-i", ...question]).status === 0
      );
    };
    expect(can("operator", "patch", "actors.substrate.run", "--subresource=status", "-A")).toBe(true);
    // One by one, as an actor's environment names them.
    expect(can("operator", "get", "secrets", "-A")).toBe(true);
    expect(can("operator", "list", "secrets", "-A")).toBe(false);
    expect(can("operator", "update", "secrets", "-A")).toBe(false);
    expect(can("atelet", "update", "leases.coordination.k8s.io", "-n", "substrate-system")).toBe(true);
    expect(can("atelet", "get", "actors.substrate.run", "-A")).toBe(false);
    expect(can("router", "patch", "actors.substrate.run", "--subresource=status", "-A")).toBe(false);
    expect(kubectl("get", "nodes", "-o", "name").trim()).toBe(`node/${running.nodeName}`);

    await expect(startLocalCluster({ stateDir, tools, say: () => undefined })).rejects.toThrow(
      `a local cluster already runs on ${stateDir} (process ${process.pid}): stop it, or name another folder`,
    );

    const had = belongings(stateDir, running.id).join("\n");
    for (const kind of [/^process /m, /^network namespace /m, /^interface /m, /^table ip /m, /^cgroup /m]) {
      expect(had).toMatch(kind);
    }
    await running.stop();
    cluster = undefined;
    expect(belongings(stateDir, running.id)).toEqual([]);
    expect(readdirSync(join(stateDir, "run")).filter((file) => file.endsWith(".json"))).toEqual([]);
  });

  it("goes on with its objects after everything was killed, and cleans up first", async () => {
    const routes = podRoutes();
    const child = spawn(process.execPath, [holder, stateDir], { stdio: ["ignore", "pipe", "inherit"] });
    let id = "";
    try {
      const [chunk] = (await once(child.stdout, "data")) as [Buffer];
      id = chunk.toString("utf8").trim();
      kubectl("create", "configmap", "kept", "--from-literal=a=b");
      const records = readdirSync(join(stateDir, "run")).filter((file) => file.endsWith(".json"));
      child.kill("SIGKILL");
      await once(child, "exit");
      // half of the processes die too, the other half, the pod among them, is still there at the next start
      for (const name of ["operator.json", "etcd.json", "kube-apiserver.json"]) {
        expect(records).toContain(name);
        const { pid } = JSON.parse(readFileSync(join(stateDir, "run", name), "utf8")) as { pid: number };
        process.kill(pid, "SIGKILL");
      }
    } finally {
      child.kill("SIGKILL");
    }
    expect(belongings(stateDir, id).join("\n")).toMatch(/^process .*router\/src\/main/m);
    const again = await start();
    expect(again.id).toBe(id);
    expect(kubectl("get", "configmap", "kept", "-o", "jsonpath={.data.a}")).toBe("b");

    // a process that dies is started again
    const before = again.pid("router");
    await again.kill("router");
    const after = await eventually(
      () => {
        const pid = again.pid("router");
        if (pid === undefined || pid === before) throw new Error("the router was not started again");
        return pid;
      },
      { deadlineMs: 10_000 },
    );
    expect(after).not.toBe(before);
    await again.ready();
    await again.stop();
    cluster = undefined;
    expect(belongings(stateDir, id)).toEqual([]);
    expect(podRoutes().filter((route) => !routes.includes(route))).toEqual([]);
  });
});
