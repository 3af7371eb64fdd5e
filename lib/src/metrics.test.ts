import { afterEach, expect, it } from "vitest";
import { type Listening, splitAddress } from "./listen.ts";
import { createLogger } from "./log.ts";
import { createRegistry, startMetricsServer } from "./metrics.ts";

const log = createLogger("test");
log.silent = true;
let server: Listening;

afterEach(async () => {
  await server.close();
});

const fetchText = async (path: string): Promise<[number, string]> => {
  const response = await fetch(`http://127.0.0.1:${String(server.port)}${path}`);
  return [response.status, await response.text()];
};

it("serves metrics, health, and readiness with its reasons", async () => {
  let problem: string | undefined = "no watch yet";
  server = await startMetricsServer({
    listen: "127.0.0.1:0",
    registry: createRegistry(),
    readyz: {
      watch: () => problem,
      lease: () => Promise.reject(new Error("lost")),
    },
    log,
  });
  const [status, text] = await fetchText("/metrics");
  expect([status, text]).toEqual([200, expect.stringContaining("substrate_process_cpu_seconds_total")]);
  expect(await fetchText("/healthz")).toEqual([200, "ok\n"]);
  expect(await fetchText("/readyz")).toEqual([503, "watch: no watch yet\nlease: lost\n"]);
  problem = undefined;
  expect(await fetchText("/readyz?verbose")).toEqual([503, "lease: lost\n"]);
  expect(await fetchText("/")).toEqual([404, "not found; there are /metrics, /healthz, /readyz\n"]);
});

it("says which address it cannot have", async () => {
  const registry = createRegistry();
  server = await startMetricsServer({ listen: "127.0.0.1:0", registry, log });
  const listen = `127.0.0.1:${String(server.port)}`;
  await expect(startMetricsServer({ listen, registry, log })).rejects.toThrow(`cannot listen on ${listen}`);
  expect(() => splitAddress("9090")).toThrow('"9090" is not an address; write host:port');
  expect(splitAddress("[::1]:80")).toEqual({ host: "::1", port: 80 });
});
