import { once } from "node:events";
import { createServer, type Server, type ServerResponse } from "node:http";
import { type AddressInfo } from "node:net";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { Upstream } from "./upstream.ts";

let server: Server;
let upstream: Upstream;
const waiting: ServerResponse[] = [];
let connections = 0;

beforeEach(async () => {
  connections = 0;
  server = createServer((request, response) => {
    if (request.url === "/wait") waiting.push(response);
    else response.end("hello");
  });
  server.keepAliveTimeout = 60_000;
  server.on("connection", (socket) => {
    connections += 1;
    socket.on("close", () => (connections -= 1));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const endpoint = { portName: "http", containerPort: 8080, address: "127.0.0.1", port };
  upstream = new Upstream(endpoint, { headersTimeoutMs: 5000, connectTimeoutMs: 5000 });
});
afterEach(() => {
  upstream.discard(new Error("over"));
  server.closeAllConnections();
  server.close();
});

async function ask(path: string): Promise<string> {
  const { body } = await upstream.pool.request({ path, method: "GET" });
  return body.text();
}

it("closes connections that carry nothing, and others when they have nothing more to carry", async () => {
  await ask("/");
  const open = ask("/wait");
  await Promise.all([ask("/"), ask("/")]);
  await vi.waitFor(() => {
    expect(waiting).toHaveLength(1);
  });
  expect(connections).toBeGreaterThan(1);
  upstream.closeIdle();
  await vi.waitFor(() => {
    expect(connections).toBe(1);
  });
  waiting.pop()?.end("late");
  expect(await open).toBe("late");
  await vi.waitFor(() => {
    expect(connections).toBe(0);
  });
  // it is not the end of the upstream
  expect(await ask("/")).toBe("hello");
});

it("cuts what is still under way on connections that were to close", async () => {
  const open = ask("/wait");
  await vi.waitFor(() => {
    expect(waiting).toHaveLength(1);
  });
  upstream.closeIdle();
  upstream.discard(new Error("gone"));
  await expect(open).rejects.toThrow("gone");
  waiting.length = 0;
});
