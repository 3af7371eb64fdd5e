import { type IncomingMessage, STATUS_CODES } from "node:http";
import { type Duplex } from "node:stream";
import { type Actor } from "@substrate/crds/index.ts";
import { execProtocols } from "@substrate/lib/exec-channels.ts";
import { type WebSocket, WebSocketServer } from "ws";
import { type Caller } from "./access.ts";
import { badRequest, type StatusObject } from "./status-error.ts";

export interface UpgradeRequest {
  actor: Actor;
  query: URLSearchParams;
  caller: Caller;
  /** Answers 101. Throws INVALID when the client speaks none of the protocols. */
  accept: () => Promise<WebSocket>;
}

/** What a subresource does with a WebSocket; it resolves when the conversation is over. */
export type UpgradeHandler = (request: UpgradeRequest) => Promise<void>;

/** Larger messages than any client sends: kubectl's have 32 KiB. */
const maxPayload = 4 * 1024 * 1024;

/** Turns requests into WebSockets. */
export class Upgrades {
  readonly #server = new WebSocketServer({
    noServer: true,
    perMessageDeflate: false,
    maxPayload,
    handleProtocols: (offered) => execProtocols.find((protocol) => offered.has(protocol)) ?? false,
  });

  readonly #open = new Set<WebSocket>();

  /** Ends all conversations. */
  close(): void {
    for (const client of this.#open) client.terminate();
  }

  accept(incoming: IncomingMessage, socket: Duplex, head: Buffer): Promise<WebSocket> {
    const offered = (incoming.headers["sec-websocket-protocol"] ?? "").split(",").map((name) => name.trim());
    if (!execProtocols.some((protocol) => offered.includes(protocol))) {
      throw badRequest(`none of the WebSocket's protocols is known: ${execProtocols.join(" and ")} are`);
    }
    return new Promise((resolve) => {
      this.#server.handleUpgrade(incoming, socket, head, (client) => {
        // what breaks is seen by the close that follows
        client.on("error", () => undefined);
        this.#open.add(client);
        client.once("close", () => this.#open.delete(client));
        resolve(client);
      });
    });
  }
}

/** An answer where no response object is: the request wanted to be more than HTTP. */
export function refuseUpgrade(socket: Duplex, status: StatusObject): void {
  const body = `${JSON.stringify(status)}\n`;
  socket.end(
    `HTTP/1.1 ${status.code} ${STATUS_CODES[status.code] ?? "Error"}\r\n` +
      `content-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n\r\n${body}`,
  );
}
