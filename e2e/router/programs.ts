import { createHash } from "node:crypto";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { type AddressInfo } from "node:net";
import { type Duplex } from "node:stream";

/** An HTTP server that plays an actor's program; it keeps the requests that wait for the test's word. */
export class Program {
  readonly seen: IncomingMessage["headers"][] = [];
  readonly waiting: ServerResponse[] = [];
  /** Upgrades that get no answer. */
  silentUpgrades = 0;
  readonly #server: Server;
  /** Not the server's any more, but they keep it from closing. */
  readonly #upgraded = new Set<Duplex>();
  /** Connections that have carried a request. */
  readonly #kept = new WeakSet<object>();
  #sent = 0;

  constructor() {
    this.#server = createServer((request, response) => {
      this.seen.push(request.headers);
      this.#answer(request, response);
      this.#kept.add(request.socket);
    });
    this.#server.on("upgrade", (request: IncomingMessage, socket: Duplex) => {
      this.#upgraded.add(socket);
      socket.once("close", () => this.#upgraded.delete(socket));
      if (request.url !== "/silent") {
        acceptWebSocket(request, socket);
        return;
      }
      this.silentUpgrades += 1;
      socket.on("error", () => socket.destroy());
      socket.on("end", () => socket.end()).resume();
    });
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** Bytes that /flood has handed to its socket. */
  get sentBytes(): number {
    return this.#sent;
  }

  listen(port = 0): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#server.once("error", reject);
      this.#server.listen(port, "127.0.0.1", resolve);
    });
  }

  close(): Promise<void> {
    return new Promise((resolve) => {
      this.#server.close(() => {
        resolve();
      });
      this.#server.closeAllConnections();
      for (const socket of this.#upgraded) socket.destroy();
    });
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    switch (request.url ?? "/") {
      case "/wait":
        this.waiting.push(response);
        break;
      case "/echo":
        response.writeHead(200, { "content-type": "application/octet-stream" });
        request.pipe(response);
        break;
      case "/events":
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.flushHeaders();
        this.waiting.push(response);
        break;
      case "/flood":
        this.#flood(response);
        break;
      case "/break":
        request.socket.destroy();
        break;
      case "/break-if-kept":
        // a keep-alive race: the connection closes just when a second request comes
        if (this.#kept.has(request.socket)) request.socket.destroy();
        else response.end("first on its connection");
        break;
      case "/half":
        response.writeHead(200, { "content-length": "100" }).write("half");
        setImmediate(() => request.socket.destroy());
        break;
      default:
        response.writeHead(200, { "set-cookie": ["a=1", "b=2"], connection: "x-secret", "x-secret": "1" });
        response.end(`hello ${request.method ?? ""} ${request.url ?? ""}`);
    }
  }

  #flood(response: ServerResponse): void {
    const chunk = Buffer.alloc(64 * 1024);
    const more = (): void => {
      while (!response.destroyed) {
        this.#sent += chunk.length;
        if (!response.write(chunk)) {
          response.once("drain", more);
          return;
        }
      }
    };
    more();
  }
}

/** RFC 6455 §1.3: the handshake's fixed GUID. */
const webSocketGuid = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/** Accepts the handshake, then sends every byte back: enough for a proxy, which never looks inside. */
function acceptWebSocket(request: IncomingMessage, socket: Duplex): void {
  if (request.url === "/refuse") {
    socket.end("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno");
    return;
  }
  const key = createHash("sha1")
    .update(`${request.headers["sec-websocket-key"] ?? ""}${webSocketGuid}`)
    .digest("base64");
  socket.on("error", () => socket.destroy());
  socket.write(
    `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${key}\r\n\r\n`,
  );
  socket.pipe(socket);
}

/** The handshake of a WebSocket client (RFC 6455 §1.2) for the actor `counter`. */
export function upgradeTo(path: string): string {
  return (
    `GET ${path} HTTP/1.1\r\nHost: counter.default.actors.localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n` +
    `Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n`
  );
}
