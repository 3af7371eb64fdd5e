import { createServer, type Server, type ServerResponse } from "node:http";
import { type AddressInfo } from "node:net";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { createLogger } from "../log.ts";
import { KubeClient } from "./client.ts";
import { Reflector } from "./reflector.ts";
import { type Lease, leases } from "./types.ts";

const log = createLogger("test");
log.silent = true;

/** An API server of one collection that can cut watches and forget versions. */
class FakeServer {
  readonly items = new Map<string, Lease>();
  version = 10;
  /** Answers to lists, oldest first; then the true one again. */
  failures: number[] = [];
  watchers: ServerResponse[] = [];
  lists = 0;
  watchFrom: string[] = [];
  gone = false;
  readonly #server: Server;

  constructor() {
    this.#server = createServer((request, response) => {
      const query = new URL(request.url ?? "/", "http://x").searchParams;
      if (query.has("watch")) {
        this.watchFrom.push(query.get("resourceVersion") ?? "");
        if (this.gone) {
          this.gone = false;
          response.writeHead(200);
          response.end(
            `${JSON.stringify({ type: "ERROR", object: { code: 410, reason: "Expired", message: "old" } })}\n`,
          );
          return;
        }
        response.writeHead(200).flushHeaders();
        this.watchers.push(response);
        return;
      }
      this.lists += 1;
      const failure = this.failures.shift();
      if (failure !== undefined) {
        response.writeHead(failure).end("no");
        return;
      }
      response.end(
        JSON.stringify({ metadata: { resourceVersion: String(this.version) }, items: [...this.items.values()] }),
      );
    });
  }

  async listen(): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    return `http://127.0.0.1:${String((this.#server.address() as AddressInfo).port)}`;
  }

  put(name: string, uid = `uid-${name}`): Lease {
    this.version += 1;
    const known = this.items.has(name);
    const object: Lease = {
      apiVersion: "coordination.k8s.io/v1",
      kind: "Lease",
      metadata: { name, namespace: "d", uid, resourceVersion: String(this.version) },
    };
    this.items.set(name, object);
    this.send(known ? "MODIFIED" : "ADDED", object);
    return object;
  }

  remove(name: string): void {
    const object = this.items.get(name);
    this.items.delete(name);
    this.version += 1;
    if (object !== undefined)
      this.send("DELETED", { ...object, metadata: { ...object.metadata, resourceVersion: String(this.version) } });
  }

  send(type: string, object: unknown): void {
    const line = `${JSON.stringify({ type, object })}\n`;
    // in two pieces, as a network may deliver them
    for (const watcher of this.watchers) {
      watcher.write(line.slice(0, 17));
      watcher.write(line.slice(17));
    }
  }

  /** Ends all watches as the real server does after some minutes. */
  end(): void {
    for (const watcher of this.watchers) watcher.end();
    this.watchers = [];
  }

  /** Breaks all watches; what happens until the next one isn't sent to anybody. */
  cut(): void {
    for (const watcher of this.watchers) watcher.destroy();
    this.watchers = [];
  }

  async close(): Promise<void> {
    this.cut();
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

let server: FakeServer;
let client: KubeClient;
let reflector: Reflector<Lease>;
let seen: string[];
let stop: AbortController;
let running: Promise<void>;

beforeEach(async () => {
  server = new FakeServer();
  client = new KubeClient({ server: await server.listen() }, { timeoutMs: 2_000 });
  reflector = new Reflector(client, leases, { namespace: "d", log });
  seen = [];
  reflector.onChange((key, object, previous) => {
    seen.push(`${key} ${object?.metadata.uid ?? "gone"} after ${previous?.metadata.uid ?? "nothing"}`);
  });
  stop = new AbortController();
});

afterEach(async () => {
  stop.abort();
  await running;
  await client.close();
  await server.close();
});

async function start(): Promise<void> {
  running = reflector.run(stop.signal);
  await reflector.synced;
  await vi.waitFor(() => {
    expect(reflector.connected).toBe(true);
  });
}

const eventually = (check: () => void): Promise<void> => vi.waitFor(check, { timeout: 20_000, interval: 5 });

it("reports what there is, what comes, changes and goes", async () => {
  server.put("a");
  await start();
  expect(seen).toEqual(["d/a uid-a after nothing"]);
  server.put("b");
  server.put("a");
  server.remove("b");
  await eventually(() => {
    expect(seen.slice(1)).toEqual(["d/b uid-b after nothing", "d/a uid-a after uid-a", "d/b gone after uid-b"]);
  });
  expect(reflector.get("d", "a")?.metadata.resourceVersion).toBe("13");
  expect(reflector.byUid("uid-b")).toBeUndefined();
  expect(reflector.list()).toHaveLength(1);
});

it("goes on from the last bookmark when a watch ends", async () => {
  await start();
  server.put("a");
  server.send("BOOKMARK", { metadata: { resourceVersion: "42" } });
  server.end();
  await eventually(() => {
    expect(server.watchFrom).toEqual(["10", "42"]);
  });
  expect(reflector.list()).toHaveLength(1);
  expect(server.lists).toBe(1);
});

it("goes on from the last event after a cut", async () => {
  await start();
  server.put("a");
  await eventually(() => {
    expect(reflector.list()).toHaveLength(1);
  });
  server.cut();
  await eventually(() => {
    expect(server.watchFrom).toEqual(["10", "11"]);
  });
  expect(server.lists).toBe(1);
});

it("finds by a relist after 410 what it missed: deletions, and the same name made again", async () => {
  server.put("a");
  server.put("b");
  server.put("c");
  await start();
  server.gone = true;
  server.cut();
  server.remove("a");
  server.put("b", "uid-b2");
  await eventually(() => {
    expect(server.lists).toBe(2);
    expect(seen.slice(3)).toEqual(["d/a gone after uid-a", "d/b gone after uid-b", "d/b uid-b2 after nothing"]);
  });
  expect(reflector.byUid("uid-b")).toBeUndefined();
  expect(reflector.byUid("uid-b2")?.metadata.name).toBe("b");
});

it("keeps its state and says that it is not connected while the server is away", async () => {
  server.put("a");
  await start();
  await server.close();
  await eventually(() => {
    expect(reflector.connected).toBe(false);
  });
  expect(reflector.isSynced).toBe(true);
  expect(reflector.get("d", "a")).toBeDefined();
});

it("syncs although the first lists fail", async () => {
  server.failures = [503, 500];
  server.put("a");
  await start();
  expect(reflector.list()).toHaveLength(1);
});

it("survives a listener that throws", async () => {
  reflector.onChange(() => {
    throw new Error("listener's own trouble");
  });
  const after: string[] = [];
  reflector.onChange((key) => after.push(key));
  await start();
  server.put("a");
  server.put("b");
  await eventually(() => {
    expect(after).toEqual(["d/a", "d/b"]);
  });
});
