import { once } from "node:events";
import { createServer, type Socket } from "node:net";
import { serveRemote } from "../network/remote.ts";

/** As in programs/session/stream.go: each byte of a stream is its place modulo this. */
const cycle = 251;
const chunkBytes = 16 * 1024;

interface PeerState {
  received: number;
  sent: number;
  wrong: string;
  end: string;
}

interface Peer {
  state: PeerState;
  stopped: boolean;
  socket: Socket | undefined;
}

const peers = new Map<number, Peer>();

/** Any chunk is a part of it. */
const numbers = Buffer.from(Array.from({ length: chunkBytes + cycle }, (_, i) => i % cycle));

function numbered(from: number): Buffer {
  return numbers.subarray(from % cycle, (from % cycle) + chunkBytes);
}

/** As fast as the other side takes it, until it is told to stop. */
function hammer(peer: Peer, socket: Socket): void {
  const more = (): void => {
    while (!peer.stopped && !socket.destroyed) {
      const goesOn = socket.write(numbered(peer.state.sent));
      peer.state.sent += chunkBytes;
      if (!goesOn) {
        socket.once("drain", more);
        return;
      }
    }
    socket.end();
  };
  more();
}

function take(state: PeerState, bytes: Buffer): void {
  for (const [i, value] of bytes.entries()) {
    if (state.wrong !== "" || value === (state.received + i) % cycle) continue;
    state.wrong = `byte ${state.received + i} is ${value}`;
  }
  state.received += bytes.length;
}

serveRemote({
  /** Waits for one connection. "hammer" writes without end, "halfClose" ends its side at once; both read what comes. */
  async listen(port: number, kind: "hammer" | "halfClose") {
    const peer: Peer = { state: { received: 0, sent: 0, wrong: "", end: "" }, stopped: false, socket: undefined };
    peers.set(port, peer);
    const server = createServer({ allowHalfOpen: true }, (socket) => {
      peer.socket = socket;
      socket.on("data", (bytes) => {
        take(peer.state, bytes);
      });
      socket.on("end", () => (peer.state.end = "EOF"));
      socket.on("error", (error) => (peer.state.end = error.message));
      if (kind === "hammer") hammer(peer, socket);
      else socket.end();
    });
    server.listen(port, "0.0.0.0");
    await once(server, "listening");
  },
  stop(port: number) {
    const peer = peers.get(port);
    if (peer !== undefined) peer.stopped = true;
  },
  state: (port: number) => peers.get(port)?.state,
});
