import { type IncomingMessage } from "node:http";

/** Headers of one connection only (RFC 9110 §7.6.1), and those that are for the router alone. */
const hopByHop: ReadonlySet<string> = new Set([
  "connection",
  "keep-alive",
  "proxy-connection",
  "proxy-authenticate",
  "proxy-authorization",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
]);

const notForActors: ReadonlySet<string> = new Set([
  // the router has answered it already; undici refuses to send it
  "expect",
  "substrate-actor",
  "substrate-port",
  // written anew below
  "x-forwarded-for",
  "x-forwarded-host",
  "x-forwarded-proto",
]);

/**
 * A request's headers as the actor gets them, flat pairs: Host as it came, X-Forwarded-For with the client's address
 * appended; X-Forwarded-Host and -Proto of a proxy before this one are kept.
 */
export function requestHeaders(request: IncomingMessage): string[] {
  const { headers, rawHeaders } = request;
  const named = connectionTokens(headers.connection);
  const kept: string[] = [];
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    const name = rawHeaders[i] ?? "";
    const lower = name.toLowerCase();
    if (hopByHop.has(lower) || notForActors.has(lower) || named?.has(lower) === true) continue;
    kept.push(name, rawHeaders[i + 1] ?? "");
  }
  const before = headers["x-forwarded-for"];
  const client = request.socket.remoteAddress ?? "unknown";
  kept.push("X-Forwarded-For", before === undefined ? client : `${String(before)}, ${client}`);
  const host = headers["x-forwarded-host"] ?? headers.host;
  if (host !== undefined) kept.push("X-Forwarded-Host", String(host));
  kept.push("X-Forwarded-Proto", String(headers["x-forwarded-proto"] ?? "http"));
  return kept;
}

/** A response's headers as the client gets them, flat pairs, from undici's raw ones. */
export function responseHeaders(raw: readonly (Buffer | string)[]): string[] {
  const kept: string[] = [];
  let named: ReadonlySet<string> | undefined;
  for (let i = 0; i + 1 < raw.length; i += 2) {
    const name = text(raw[i]);
    const lower = name.toLowerCase();
    if (lower === "connection") named = connectionTokens(text(raw[i + 1]));
    if (!hopByHop.has(lower)) kept.push(name, text(raw[i + 1]));
  }
  return named === undefined ? kept : without(kept, named);
}

/** What Connection names beside its own words: headers of this connection only. */
function connectionTokens(connection: string | undefined): ReadonlySet<string> | undefined {
  if (connection === undefined) return undefined;
  const tokens = connection
    .toLowerCase()
    .split(",")
    .map((token) => token.trim())
    .filter((token) => token !== "" && token !== "keep-alive" && token !== "close" && token !== "upgrade");
  return tokens.length === 0 ? undefined : new Set(tokens);
}

function without(pairs: readonly string[], names: ReadonlySet<string>): string[] {
  return pairs.filter((_, i) => !names.has((pairs[i - (i % 2)] ?? "").toLowerCase()));
}

function text(value: Buffer | string | undefined): string {
  if (value === undefined) return "";
  return typeof value === "string" ? value : value.toString("latin1");
}
