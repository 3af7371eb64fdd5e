import { STATUS_CODES, type ServerResponse } from "node:http";
import { type Duplex } from "node:stream";
import { errorCatalogue, type SubstrateError } from "@substrate/lib/errors.ts";

interface ErrorReply {
  status: number;
  headers: Record<string, string>;
  body: string;
}

/**
 * An error as clients get it: `{"error": {code, message, actor, retryAfterSeconds}}`. What a client cannot mend
 * itself and did not cause (a wake that failed) is a 503 whatever its code is elsewhere.
 */
function errorReply(error: SubstrateError, actor: string | undefined): ErrorReply {
  const { http } = errorCatalogue[error.code];
  const status = http === 409 || http === 500 || http === 403 ? 503 : http;
  const retryAfterSeconds =
    error.retryAfterMs === undefined ? undefined : Math.max(1, Math.ceil(error.retryAfterMs / 1000));
  const body = `${JSON.stringify({
    error: {
      code: error.code,
      message: error.message,
      ...(actor === undefined ? {} : { actor }),
      ...(retryAfterSeconds === undefined ? {} : { retryAfterSeconds }),
    },
  })}\n`;
  return {
    status,
    headers: {
      "content-type": "application/json",
      "content-length": String(Buffer.byteLength(body)),
      "cache-control": "no-store",
      ...(retryAfterSeconds === undefined ? {} : { "retry-after": String(retryAfterSeconds) }),
    },
    body,
  };
}

export function sendError(response: ServerResponse, error: SubstrateError, actor: string | undefined): void {
  const { status, headers, body } = errorReply(error, actor);
  response.writeHead(status, headers).end(body);
}

/** The same on the bare socket of an upgrade; ends the connection. */
export function sendErrorRaw(socket: Duplex, error: SubstrateError, actor: string | undefined): void {
  const { status, headers, body } = errorReply(error, actor);
  const lines = Object.entries({ ...headers, connection: "close" }).map(([name, value]) => `${name}: ${value}`);
  socket.end(`HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ""}\r\n${lines.join("\r\n")}\r\n\r\n${body}`);
}
