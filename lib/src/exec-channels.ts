import { type WebSocket } from "ws";

/**
 * How kubectl exec speaks over a WebSocket (k8s.io/apimachinery/pkg/util/remotecommand): the first byte of each message
 * names its channel. v5 adds the channel that closes another one.
 */
export const execProtocols = ["v5.channel.k8s.io", "v4.channel.k8s.io"] as const;

export const channels = { stdin: 0, stdout: 1, stderr: 2, status: 3, resize: 4, close: 255 } as const;

/** What is sent on the channel status at the end: a metav1.Status. */
export interface ExecEnd {
  status: "Success" | "Failure";
  message?: string;
  reason?: string;
  code?: number;
  details?: { causes?: { reason?: string; message?: string }[]; retryAfterSeconds?: number };
}

/** A program that ended as a Status: how kubectl learns of its exit code. */
export function endOf(exitCode: number): ExecEnd {
  if (exitCode === 0) return { status: "Success" };
  return {
    status: "Failure",
    reason: "NonZeroExitCode",
    message: `command terminated with exit code ${exitCode}`,
    details: { causes: [{ reason: "ExitCode", message: String(exitCode) }] },
  };
}

/** The exit code in a Status; undefined when it tells of something else that went wrong. */
export function exitCodeOf(end: ExecEnd): number | undefined {
  if (end.status === "Success") return 0;
  const code = end.details?.causes?.find(({ reason }) => reason === "ExitCode")?.message;
  return code === undefined ? undefined : Number(code);
}

/** Sends one message; resolves when the network has taken it, and when the socket is closed. */
export function sendOn(socket: WebSocket, channel: number, bytes: Uint8Array): Promise<void> {
  const message = new Uint8Array(bytes.length + 1);
  message[0] = channel;
  message.set(bytes, 1);
  return new Promise((resolve) => {
    socket.send(message, () => {
      resolve();
    });
  });
}

/** Passes on each message with its channel, one at a time: while one is taken the sender is held back. */
export function receiveFrom(socket: WebSocket, take: (channel: number, bytes: Buffer) => Promise<void> | void): void {
  socket.on("message", (data) => {
    const [channel] = data;
    if (channel === undefined) return;
    const taken = take(channel, data.subarray(1));
    if (taken === undefined) return;
    socket.pause();
    taken.then(
      () => {
        socket.resume();
      },
      () => {
        socket.terminate();
      },
    );
  });
}
