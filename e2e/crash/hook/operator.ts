import { subscribe } from "node:diagnostics_channel";
import http2 from "node:http2";
import { syncBuiltinESMExports } from "node:module";
import { type CrashPoints } from "./points.ts";

interface UndiciMessage {
  request: { method: string; path: string };
}

/** Time drives these, not the operation that is under test; or they only look. */
function isNoise({ method, path }: UndiciMessage["request"]): boolean {
  return method === "GET" || method === "HEAD" || path.includes("/leases") || path.includes("accessreviews");
}

/** Streams that stand for as long as both ends live. */
const streams = /\/(Watch|Connect|Attach|StreamLog|ReadLog)$/;

/** Two points for each outgoing call: before it is sent, and when it was done but its answer was not yet looked at. */
export function patchOperator(points: CrashPoints): void {
  for (const [channel, when] of [
    ["undici:request:create", "before"],
    ["undici:request:headers", "answered"],
  ] as const) {
    subscribe(channel, (message) => {
      const { request } = message as UndiciMessage;
      if (!isNoise(request)) points.reach(`${when} ${request.method} ${request.path.split("?")[0] ?? ""}`);
    });
  }
  const connect = http2.connect.bind(http2);
  http2.connect = ((...args: Parameters<typeof http2.connect>) => {
    const session = connect(...args);
    const send = session.request.bind(session);
    session.request = (headers, options) => {
      const path = String(Object.entries(headers ?? {}).find(([name]) => name === ":path")?.[1] ?? "");
      if (streams.test(path)) return send(headers, options);
      points.reach(`before ${path}`);
      const stream = send(headers, options);
      stream.once("response", () => {
        points.reach(`answered ${path}`);
      });
      return stream;
    };
    return session;
  }) as typeof http2.connect;
  syncBuiltinESMExports();
}
