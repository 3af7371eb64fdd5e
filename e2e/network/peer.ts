import { createSocket, type RemoteInfo, type Socket as UdpSocket } from "node:dgram";
import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { serveRemote } from "./remote.ts";

/** Somebody in some network namespace who listens, asks and keeps connections open. One line asked, one answered. */
const kept = new Map<number, Socket>();
const received: string[] = [];
const udp = new Map<number, UdpSocket>();
/** Who has sent to a listener last. */
const senders = new Map<number, RemoteInfo>();

function failure(error: unknown): string {
  return error instanceof Error && "code" in error ? String(error.code) : String(error);
}

async function line(socket: Socket, text: string, timeoutMs: number): Promise<string> {
  socket.write(`${text}\n`);
  try {
    const [bytes] = (await once(socket, "data", { signal: AbortSignal.timeout(timeoutMs) })) as [Buffer];
    return bytes.toString().trim();
  } catch (error) {
    return error instanceof Error && error.name === "AbortError" ? "silence" : failure(error);
  }
}

async function dial(host: string, port: number, timeoutMs: number): Promise<Socket | string> {
  const socket = connect({ host, port });
  try {
    await once(socket, "connect", { signal: AbortSignal.timeout(timeoutMs) });
  } catch (error) {
    socket.destroy();
    return error instanceof Error && error.name === "AbortError" ? "silence" : failure(error);
  }
  socket.on("error", () => socket.destroy());
  return socket;
}

serveRemote({
  /** Answers every line with name, the line and the peer's address. */
  async listen(port: number, name: string) {
    const server = createServer((socket) => {
      socket.on("error", () => socket.destroy());
      socket.on("data", (bytes) => {
        const text = bytes.toString().trim();
        received.push(text);
        socket.write(`${name} ${text} ${socket.remoteAddress ?? "?"}\n`);
      });
    });
    server.listen(port, "0.0.0.0");
    await once(server, "listening");
  },
  /** Every line that anybody has sent to this one's listeners. */
  received: () => received,
  async listenUdp(host: string, port: number, name: string) {
    const socket = createSocket("udp4");
    socket.on("message", (bytes, from) => {
      received.push(bytes.toString());
      senders.set(port, from);
      socket.send(name, from.port, from.address);
    });
    socket.bind(port, host);
    await once(socket, "listening");
    udp.set(port, socket);
  },
  /** The answer, or an error code, or "silence". */
  async ask(host: string, port: number, text: string, timeoutMs: number) {
    const socket = await dial(host, port, timeoutMs);
    if (typeof socket === "string") return socket;
    const answer = await line(socket, text, timeoutMs);
    socket.destroy();
    return answer;
  },
  /** To whoever has sent to the listener last, as often as it takes: nothing is told of what is lost. */
  tellUdp(port: number, text: string) {
    const to = senders.get(port);
    if (to !== undefined) udp.get(port)?.send(text, to.port, to.address);
  },
  /** From a listener's own port. */
  sendUdp(port: number, host: string, hostPort: number, text: string) {
    udp.get(port)?.send(text, hostPort, host);
  },
  async askUdp(host: string, port: number, text: string, timeoutMs: number) {
    const socket = createSocket("udp4");
    socket.send(text, port, host);
    try {
      const [bytes] = (await once(socket, "message", { signal: AbortSignal.timeout(timeoutMs) })) as [Buffer];
      return bytes.toString();
    } catch (error) {
      return error instanceof Error && error.name === "AbortError" ? "silence" : failure(error);
    } finally {
      socket.close();
    }
  },
  async keep(id: number, host: string, port: number) {
    const socket = await dial(host, port, 5000);
    if (typeof socket === "string") throw new Error(`${host}:${port}: ${socket}`);
    kept.set(id, socket);
  },
  askKept(id: number, text: string, timeoutMs: number) {
    const socket = kept.get(id);
    return socket === undefined || socket.destroyed ? "closed" : line(socket, text, timeoutMs);
  },
});
