import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { KubeClient } from "@substrate/lib/kube/client.ts";
import { loadKubeConfig } from "@substrate/lib/kube/config.ts";
import { leases } from "@substrate/lib/kube/types.ts";
import { startControlPlane, type TestControlPlane } from "../support/controlplane.ts";
import { eventually } from "../support/poll.ts";

const namespace = "default";
const wait = { deadlineMs: 15_000 };

interface Stub {
  pid: number;
  orphan: number;
  session: string;
  bootId: string;
}

class Supervised {
  readonly #child: ChildProcess;
  readonly #stateDir: string;
  stderr = "";

  constructor(stateDir: string, kubeconfig: string) {
    this.#stateDir = stateDir;
    const script = fileURLToPath(new URL("./supervised.ts", import.meta.url));
    this.#child = spawn(process.execPath, [script, stateDir, kubeconfig, namespace], {
      stdio: ["ignore", "ignore", "pipe"],
    });
    this.#child.stderr?.on("data", (text: Buffer) => (this.stderr += text.toString()));
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  stub(): Promise<Stub> {
    return eventually(() => JSON.parse(readFileSync(join(this.#stateDir, "stub.json"), "utf8")) as Stub, wait);
  }

  nextStub(before: Stub): Promise<Stub> {
    return eventually(async () => {
      const stub = await this.stub();
      if (stub.pid === before.pid) throw new Error(`still the stub ${before.pid}; ${this.stderr}`);
      return stub;
    }, wait);
  }

  async end(signal: NodeJS.Signals): Promise<number | null> {
    if (this.#child.exitCode === null && this.#child.signalCode === null) {
      const exit = once(this.#child, "exit");
      this.#child.kill(signal);
      await exit;
    }
    return this.#child.exitCode;
  }

  async exit(): Promise<number | null> {
    if (this.#child.exitCode === null) await once(this.#child, "exit");
    return this.#child.exitCode;
  }
}

function exists(pid: number): boolean {
  return existsSync(`/proc/${pid}`);
}

function parentOf(pid: number): number {
  return Number(/^PPid:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]);
}

const folder = mkdtempSync(join(tmpdir(), "substrate-supervisor-"));
const running: Supervised[] = [];
const seen: Stub[] = [];

function supervise(name: string, kubeconfig: string): Supervised {
  const supervised = new Supervised(join(folder, name), kubeconfig);
  running.push(supervised);
  return supervised;
}

afterAll(async () => {
  for (const supervised of running) await supervised.end("SIGTERM");
  for (const { pid, orphan } of seen) for (const left of [pid, orphan]) if (exists(left)) process.kill(left, "SIGKILL");
  rmSync(folder, { recursive: true, force: true });
});

describe("the supervisor, with no API server", () => {
  const kubeconfig = join(folder, "nobody.kubeconfig");
  let supervised: Supervised;
  let stub: Stub;

  beforeAll(async () => {
    writeFileSync(
      kubeconfig,
      JSON.stringify({
        "current-context": "c",
        contexts: [{ name: "c", context: { cluster: "c", user: "u" } }],
        clusters: [{ name: "c", cluster: { server: "https://127.0.0.1:1" } }],
        users: [{ name: "u", user: { token: "t" } }],
      }),
    );
    supervised = supervise("a", kubeconfig);
    stub = await supervised.stub();
    seen.push(stub);
  });

  it("starts the atelet and adopts its orphans", () => {
    expect(parentOf(stub.pid)).toBe(supervised.pid);
    expect(parentOf(stub.orphan)).toBe(supervised.pid);
    expect(statSync(join(folder, "a")).mode & 0o777).toBe(0o700);
  });

  it("lets no second atelet have the node folder, and says who has it", async () => {
    const second = supervise("a", kubeconfig);
    expect(await second.exit()).toBe(1);
    expect(second.stderr).toContain(`--state-dir ${join(folder, "a")} is in use by the atelet`);
    expect(second.stderr).toContain(`supervisor is process ${supervised.pid}`);
  });

  it("starts a killed atelet again in the same session, keeps orphans and reaps them when they end", async () => {
    process.kill(stub.pid, "SIGKILL");
    const next = await supervised.nextStub(stub);
    seen.push(next);
    expect(next).toMatchObject({ session: stub.session, bootId: stub.bootId });
    expect(parentOf(stub.orphan)).toBe(supervised.pid);
    process.kill(stub.orphan, "SIGKILL");
    await eventually(() => {
      expect(exists(stub.orphan)).toBe(false);
    }, wait);
    stub = next;
  });

  it("kills a hung atelet and starts another", async () => {
    process.kill(stub.pid, "SIGSTOP");
    const next = await supervised.nextStub(stub);
    seen.push(next);
    expect(exists(stub.pid)).toBe(false);
    expect(supervised.stderr).toContain("the atelet hangs");
    stub = next;
  });

  it("leaves nothing after SIGTERM, though the atelet ignores it", async () => {
    expect(await supervised.end("SIGTERM")).toBe(0);
    expect(supervised.stderr).toContain("killing what is left");
    const left = seen.flatMap(({ pid, orphan }) => [pid, orphan]).filter(exists);
    expect(left).toEqual([]);
  });
});

function nextSession(supervised: Supervised, before: Stub): Promise<Stub> {
  return eventually(async () => {
    const stub = await supervised.stub();
    if (stub.session === before.session) throw new Error(`still session ${before.session}; ${supervised.stderr}`);
    return stub;
  }, wait);
}

describe("the session", () => {
  let plane: TestControlPlane;
  let client: KubeClient;

  beforeAll(async () => {
    plane = await startControlPlane({ objects: false });
    client = new KubeClient(loadKubeConfig(plane.kubeconfig));
  });
  afterAll(async () => {
    await client.close();
    await plane.stop();
  });

  function annotationsOf(session: string): Promise<Record<string, string>> {
    return eventually(async () => {
      const lease = await client.get(leases, "n1", namespace);
      if (lease?.spec?.holderIdentity !== session) throw new Error(`the Lease is ${JSON.stringify(lease?.spec)}`);
      return lease.metadata.annotations ?? {};
    }, wait);
  }

  it("is in the Lease, ends with it, and is given back at the end", async () => {
    const supervised = supervise("b", plane.kubeconfig);
    const first = await supervised.stub();
    seen.push(first);
    await eventually(async () => {
      expect(await annotationsOf(first.session)).toEqual({
        "substrate.run/address": "10.0.0.2:7443",
        "substrate.run/boot-id": first.bootId,
        "substrate.run/runtime": "stub/1",
      });
    }, wait);

    await client.delete(leases, "n1", namespace);
    const second = await nextSession(supervised, first);
    await annotationsOf(second.session);

    await client.mergePatch(leases, "n1", namespace, { spec: { holderIdentity: "fence" } });
    const third = await nextSession(supervised, second);
    await annotationsOf(third.session);
    expect(third).toMatchObject({ pid: first.pid, bootId: first.bootId });

    expect(await supervised.end("SIGTERM")).toBe(0);
    expect((await client.get(leases, "n1", namespace))?.spec?.holderIdentity).toBeUndefined();
  });
});
