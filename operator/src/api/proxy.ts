import { type IncomingHttpHeaders } from "node:http";
import { pipeline } from "node:stream/promises";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { keyOf } from "@substrate/lib/kube/client.ts";
import { type Dispatcher, type Pool } from "undici";
import { type Handler } from "./server.ts";

/** RFC 9110 §7.6.1, and what undici refuses. */
const hopHeaders = new Set([
  "connection",
  "expect",
  "keep-alive",
  "proxy-authenticate",
  "proxy-authorization",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
  "host",
  "content-length",
]);

/**
 * What goes on to the program: nothing that proves who the caller is to Kubernetes, and nothing that only concerns
 * one connection. content-length is kept for requests with a body of known length.
 */
export function forwardedHeaders(headers: IncomingHttpHeaders, actorKey: string): Record<string, string | string[]> {
  const named = new Set((headers.connection ?? "").split(",").map((name) => name.trim().toLowerCase()));
  const forwarded: Record<string, string | string[]> = {};
  for (const [name, value] of Object.entries(headers)) {
    if (value === undefined || hopHeaders.has(name) || named.has(name)) continue;
    if (name.startsWith("x-remote-") || name === "authorization" || name === "substrate-actor") continue;
    forwarded[name] = value;
  }
  if (headers["content-length"] !== undefined) forwarded["content-length"] = headers["content-length"];
  forwarded["substrate-actor"] = actorKey;
  return forwarded;
}

/** ANY actors/NAME/proxy/PATH: through the router, so that it wakes the actor and counts the request. */
export function proxyHandler(router: Pool): Handler {
  return async ({ actor, path, search, incoming, response, signal }) => {
    const key = keyOf(actor);
    const hasBody =
      incoming.headers["content-length"] !== undefined || incoming.headers["transfer-encoding"] !== undefined;
    let answer: Dispatcher.ResponseData;
    try {
      answer = await router.request({
        method: incoming.method ?? "GET",
        path: `${path.rest === "" ? "/" : path.rest}${search}`,
        headers: forwardedHeaders(incoming.headers, key),
        body: hasBody ? incoming : null,
        signal,
      });
    } catch (error) {
      if (signal.aborted) return;
      const message = `Actor ${key}: the router does not answer: ${error instanceof Error ? error.message : String(error)}`;
      throw new SubstrateError("NODE_UNAVAILABLE", message, { cause: error, retryAfterMs: 1_000 });
    }
    const headers = Object.entries(answer.headers).filter(
      (header): header is [string, string | string[]] =>
        header[1] !== undefined && (!hopHeaders.has(header[0]) || header[0] === "content-length"),
    );
    response.writeHead(answer.statusCode, Object.fromEntries(headers));
    response.flushHeaders();
    try {
      await pipeline(answer.body, response);
    } catch (error) {
      // gone in the middle: pipeline has destroyed the response, which tells the client
      if (!signal.aborted) throw error;
    }
  };
}
