import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { type AddressInfo } from "node:net";
import { afterEach, beforeEach, expect, it } from "vitest";
import { KubeClient } from "./client.ts";
import { leases } from "./types.ts";

let handlers: ((request: IncomingMessage, response: ServerResponse) => void)[];
let requests: string[];
let server: Server;
let client: KubeClient;

const lease = { apiVersion: "coordination.k8s.io/v1", kind: "Lease", metadata: { name: "l", namespace: "d" } };
const answer = (_: IncomingMessage, response: ServerResponse): void => {
  response.end(JSON.stringify(lease));
};
const cut = (request: IncomingMessage): void => {
  request.socket.destroy();
};
const hang = (): void => undefined;

beforeEach(async () => {
  handlers = [];
  requests = [];
  server = createServer((request, response) => {
    requests.push(`${request.method ?? ""} ${request.url ?? ""}`);
    (handlers.shift() ?? answer)(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  client = new KubeClient(
    { server: `http://127.0.0.1:${String(port)}/clusters/a`, token: () => "t" },
    { timeoutMs: 200, fieldManager: "test" },
  );
});

afterEach(async () => {
  await client.close();
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});

it("keeps the server's path and names the object in the URL", async () => {
  await client.get(leases, "l", "d");
  await client.replace(leases, lease, { subresource: "status" });
  expect(requests).toEqual([
    "GET /clusters/a/apis/coordination.k8s.io/v1/namespaces/d/leases/l",
    "PUT /clusters/a/apis/coordination.k8s.io/v1/namespaces/d/leases/l/status?fieldManager=test",
  ]);
});

it("refuses an object without its namespace before it asks the server for another one", async () => {
  await expect(client.get(leases, "l")).rejects.toThrow('Lease "l" needs a namespace');
  expect(requests).toEqual([]);
});

it("reads again when the connection breaks", async () => {
  handlers = [cut, cut];
  await expect(client.get(leases, "l", "d")).resolves.toEqual(lease);
  expect(requests).toHaveLength(3);
});

it("never writes again when the connection breaks: it may have been done", async () => {
  handlers = [cut];
  await expect(client.replace(leases, lease)).rejects.toMatchObject({ status: 0, reason: "Unreachable" });
  expect(requests).toHaveLength(1);
});

it("writes again when the server was too busy to begin", async () => {
  handlers = [
    (_, response) => {
      response.writeHead(429, { "retry-after": "1" }).end("slow down");
    },
  ];
  await expect(client.replace(leases, lease)).resolves.toEqual(lease);
});

it("gives up after its timeout, and does not try again", async () => {
  handlers = [hang];
  await expect(client.get(leases, "l", "d")).rejects.toMatchObject({ status: 0, reason: "Timeout" });
  expect(requests).toHaveLength(1);
});

it("gives up when it is told to", async () => {
  handlers = [hang];
  const signal = AbortSignal.timeout(20);
  await expect(client.get(leases, "l", "d", { signal, timeoutMs: 10_000 })).rejects.toMatchObject({ status: 0 });
});

it("says what the server said", async () => {
  handlers = [
    (_, response) => {
      response
        .writeHead(403, { "content-type": "application/json" })
        .end(JSON.stringify({ kind: "Status", reason: "Forbidden", message: "user x cannot" }));
    },
  ];
  await expect(client.list(leases)).rejects.toMatchObject({
    status: 403,
    reason: "Forbidden",
    message: "GET /apis/coordination.k8s.io/v1/leases: 403 user x cannot",
  });
});

it("reads watch events whatever pieces they come in", async () => {
  const event = { type: "ADDED", object: { ...lease, metadata: { ...lease.metadata, annotations: { a: "äöü\n€" } } } };
  const bytes = Buffer.from(`${JSON.stringify(event)}\n\n${JSON.stringify(event)}\n{"type":"ADD`);
  handlers = [
    (_, response) => {
      for (const byte of bytes) response.write(Buffer.of(byte));
      response.end();
    },
  ];
  const events = [];
  for await (const each of client.watch(leases, { resourceVersion: "1" })) events.push(each);
  expect(events).toEqual([event, event]);
});

const refuse =
  (message: string) =>
  (_: IncomingMessage, response: ServerResponse): void => {
    response.writeHead(403).end(JSON.stringify({ kind: "Status", reason: "Forbidden", message }));
  };
const denied = 'leases.coordination.k8s.io "l" is forbidden: User "op" cannot get resource "leases" in API group "c"';

async function patient(deniedPatienceMs: number): Promise<KubeClient> {
  await client.close();
  const { port } = server.address() as AddressInfo;
  client = new KubeClient({ server: `http://127.0.0.1:${String(port)}`, token: () => "t" }, { deniedPatienceMs });
  return client;
}

it("regression: was denied what its role allows, because an API server that had just begun had not read it", async () => {
  handlers = [refuse(denied), refuse(denied)];
  const calls = await patient(10_000);
  await expect(calls.replace(leases, lease)).resolves.toEqual(lease);
  expect(requests).toHaveLength(3);
});

it("says that it is denied when its patience, or that of the call, is over", async () => {
  handlers = Array.from({ length: 20 }, () => refuse(denied));
  const forbidden = { status: 403, reason: "Forbidden" };
  await expect((await patient(120)).get(leases, "l", "d")).rejects.toMatchObject(forbidden);
  expect(requests.length).toBeGreaterThan(1);
  const before = requests.length;
  await expect((await patient(10_000)).get(leases, "l", "d", { timeoutMs: 20 })).rejects.toMatchObject(forbidden);
  expect(requests).toHaveLength(before + 1);
});

it("does not repeat what admission refuses", async () => {
  handlers = [refuse('leases "l" is forbidden: exceeded quota: q, requested: count/leases=1')];
  await expect((await patient(10_000)).replace(leases, lease)).rejects.toMatchObject({ status: 403 });
  expect(requests).toHaveLength(1);
});
