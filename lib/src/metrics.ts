import { createServer, type ServerResponse } from "node:http";
import { collectDefaultMetrics, Registry } from "prom-client";
import { listen, type Listening } from "./listen.ts";
import { type Logger } from "./log.ts";

/** A registry of this process with Node's own metrics, all names beginning with `substrate_`. */
export function createRegistry(): Registry {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry, prefix: "substrate_" });
  return registry;
}

/** Says what is wrong, or undefined when all is well. A throw counts as wrong. */
export type Check = () => string | undefined | Promise<string | undefined>;

export interface MetricsServerOptions {
  /** `host:port`; port 0 takes a free one. */
  listen: string;
  registry: Registry;
  /** Named checks; `/healthz` answers 503 when one fails: the process should be restarted. */
  healthz?: Record<string, Check>;
  /** As healthz; 503 means: send no work yet. */
  readyz?: Record<string, Check>;
  /** What people may look at, by path, as JSON: "/debug/…". */
  debug?: Record<string, () => Promise<unknown>>;
  log: Logger;
}

/** Checks that take longer count as failed. */
const checkTimeoutMs = 2_000;

/** Serves `/metrics`, `/healthz` and `/readyz`; rejects when the address cannot be bound. */
export async function startMetricsServer(options: MetricsServerOptions): Promise<Listening> {
  const { registry, log, debug = {} } = options;
  const answer = async (path: string, response: ServerResponse): Promise<void> => {
    if (path === "/metrics") {
      const body = await registry.metrics();
      response.writeHead(200, { "content-type": registry.contentType }).end(body);
    } else if (path === "/healthz" || path === "/readyz") {
      const failed = await failures(path === "/healthz" ? options.healthz : options.readyz);
      response
        .writeHead(failed.length === 0 ? 200 : 503, { "content-type": "text/plain; charset=utf-8" })
        .end(failed.length === 0 ? "ok\n" : `${failed.join("\n")}\n`);
    } else if (debug[path] !== undefined) {
      const body = `${JSON.stringify(await debug[path](), null, 2)}\n`;
      response.writeHead(200, { "content-type": "application/json" }).end(body);
    } else {
      const paths = ["/metrics", "/healthz", "/readyz", ...Object.keys(debug)];
      response.writeHead(404, { "content-type": "text/plain" }).end(`not found; there are ${paths.join(", ")}\n`);
    }
  };
  const server = createServer((request, response) => {
    answer(request.url?.split("?")[0] ?? "/", response).catch((error: unknown) => {
      log.error("metrics request failed", { path: request.url, error });
      response.writeHead(500).end();
    });
  });
  return listen(server, options.listen, "metrics");
}

async function failures(checks: Record<string, Check> = {}): Promise<string[]> {
  const results = await Promise.all(
    Object.entries(checks).map(async ([name, check]) => {
      const problem = await bounded(check);
      return problem === undefined ? [] : [`${name}: ${problem}`];
    }),
  );
  return results.flat();
}

async function bounded(check: Check): Promise<string | undefined> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<string>((resolve) => {
    timer = setTimeout(() => {
      resolve(`no answer within ${String(checkTimeoutMs)} ms`);
    }, checkTimeoutMs);
  });
  try {
    return await Promise.race([Promise.resolve().then(check), late]);
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  } finally {
    clearTimeout(timer);
  }
}
