import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from "node:http";
import { type AddressInfo } from "node:net";
import { pipeline } from "node:stream";
import { type ActorAddress, subresourcePath } from "./address.ts";
import { type Connection, send } from "./connection.ts";
import { CommandFailure } from "./failure.ts";

/** Headers of one connection, and those that would speak to the API server in the caller's name. */
const notForwarded: ReadonlySet<string> = new Set([
  "host",
  "connection",
  "keep-alive",
  "proxy-connection",
  "proxy-authorization",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
  "expect",
  "authorization",
]);

/** Only these: a web page that knows a name for 127.0.0.1 must not get at the actor with the user's rights. */
const localHost = /^(?:localhost|127\.0\.0\.1|\[::1\])(?::\d+)?$/;

export interface LocalProxy {
  port: number;
  close(): void;
}

/** Serves an actor on 127.0.0.1: each request goes through the API server's actors/proxy with the user's credentials. */
export async function startProxy(
  connection: Connection,
  address: ActorAddress,
  port: number,
  actorPort: string | undefined,
): Promise<LocalProxy> {
  const base = subresourcePath(address, "proxy");
  const server = createServer({ requestTimeout: 0 }, (request, response) => {
    if (!localHost.test(request.headers.host ?? "")) {
      answer(response, 403, `this proxy answers to localhost only, not to "${request.headers.host ?? ""}"`);
      return;
    }
    forward(connection, base, actorPort, request, response).catch((error: unknown) => {
      if (response.headersSent) response.destroy();
      else answer(response, 502, error instanceof Error ? error.message : String(error));
    });
  });
  await listen(server, port);
  return {
    port: (server.address() as AddressInfo).port,
    close: () => {
      server.close();
      server.closeAllConnections();
    },
  };
}

function listen(server: Server, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", (error) => {
      reject(
        new CommandFailure(
          "usage",
          `can't listen on 127.0.0.1:${port}: ${error.message}`,
          "choose another port with --port, or 0 for a free one",
          error,
        ),
      );
    });
    server.listen(port, "127.0.0.1", resolve);
  });
}

async function forward(
  connection: Connection,
  base: string,
  actorPort: string | undefined,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const url = request.url ?? "/";
  const options = await connection.options(base + (url.startsWith("/") ? url : `/${url}`), {
    method: request.method ?? "GET",
    headers: {
      ...forwardedHeaders(request.headers),
      ...(actorPort === undefined ? {} : { "substrate-port": actorPort }),
    },
  });
  await new Promise<void>((resolve, reject) => {
    const outgoing = send(options, (incoming) => {
      const { statusCode = 502, statusMessage, headers } = incoming;
      response.writeHead(statusCode, statusMessage, withoutHopHeaders(headers));
      response.flushHeaders();
      pipeline(incoming, response, (error) => {
        if (error instanceof Error) reject(error);
        else resolve();
      });
    });
    outgoing.on("error", (error) => {
      reject(connection.unreachable(error));
    });
    response.on("close", () => outgoing.destroy());
    request.pipe(outgoing);
  });
}

function forwardedHeaders(headers: IncomingHttpHeaders): Record<string, string | string[]> {
  const kept: Record<string, string | string[]> = {};
  for (const [name, value] of Object.entries(headers)) {
    if (value === undefined || notForwarded.has(name)) continue;
    if (name.startsWith("impersonate-") || name.startsWith("x-remote-")) continue;
    kept[name] = value;
  }
  return kept;
}

function withoutHopHeaders(headers: IncomingHttpHeaders): IncomingHttpHeaders {
  const kept = { ...headers };
  for (const name of ["connection", "keep-alive", "transfer-encoding"]) Reflect.deleteProperty(kept, name);
  return kept;
}

function answer(response: ServerResponse, status: number, message: string): void {
  response.writeHead(status, { "content-type": "application/json" });
  response.end(`${JSON.stringify({ error: { code: "PROXY", message } })}\n`);
}
