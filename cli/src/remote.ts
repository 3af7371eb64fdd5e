import { type IncomingMessage } from "node:http";
import { type Readable } from "node:stream";
import { text } from "node:stream/consumers";
import {
  channels,
  type ExecEnd,
  execProtocols,
  exitCodeOf,
  receiveFrom,
  sendOn,
} from "@substrate/lib/exec-channels.ts";
import { WebSocket } from "ws";
import { type ActorAddress, subresourcePath } from "./address.ts";
import { type Connection } from "./connection.ts";
import { CommandFailure } from "./failure.ts";
import { refusal } from "./refusal.ts";
import { withoutSubject } from "./subject.ts";

export interface RemoteProgram {
  command: readonly string[];
  tty: boolean;
  /** Its input; none when left out. */
  stdin?: Readable | undefined;
  /** Takes its output; a promise that waits holds the program back. */
  stdout: (bytes: Buffer) => Promise<void> | void;
  stderr: (bytes: Buffer) => Promise<void> | void;
  /** Called when it runs, with what tells it its terminal's size. */
  begun?: (resize: (size: { columns: number; rows: number }) => void) => void;
}

/** Runs a program inside an actor; its exit code. @throws {CommandFailure} when it could not be run to its end */
export async function runRemote(
  connection: Connection,
  address: ActorAddress,
  program: RemoteProgram,
): Promise<number> {
  const key = `${address.namespace}/${address.name}`;
  const socket = await connect(connection, address, program);
  let end: ExecEnd | undefined;
  // the plugin runs on the system's node: without Promise.withResolvers
  const closed = new Promise<number>((resolve, reject) => {
    socket.once("close", () => {
      const code = end === undefined ? undefined : exitCodeOf(end);
      if (end === undefined) reject(cut(key));
      else if (code === undefined) reject(failed(key, end));
      else resolve(code);
    });
  });
  receiveFrom(socket, (channel, bytes) => {
    if (channel === channels.stdout) return program.stdout(bytes);
    if (channel === channels.stderr) return program.stderr(bytes);
    if (channel === channels.status) end = JSON.parse(bytes.toString()) as ExecEnd;
    return undefined;
  });
  program.begun?.(({ columns, rows }) => {
    void sendOn(socket, channels.resize, Buffer.from(JSON.stringify({ Width: columns, Height: rows })));
  });
  if (program.stdin !== undefined) sendInput(socket, program.stdin);
  return closed;
}

async function connect(connection: Connection, address: ActorAddress, program: RemoteProgram): Promise<WebSocket> {
  const query = new URLSearchParams({ stdout: "true", stderr: String(!program.tty), tty: String(program.tty) });
  query.set("stdin", String(program.stdin !== undefined));
  for (const argument of program.command) query.append("command", argument);
  const path = `${subresourcePath(address, "exec")}?${query.toString()}`;
  const options = await connection.options(path);
  const socket = new WebSocket(connection.server.replace(/^http/, "ws") + path, execProtocols, {
    ...options,
    perMessageDeflate: false,
  });
  return new Promise((resolve, reject) => {
    socket.once("open", () => {
      socket.on("error", () => undefined);
      resolve(socket);
    });
    socket.once("unexpected-response", (_, response) => {
      refused(connection, address, response).then(reject, reject);
    });
    socket.once("error", (error) => {
      reject(connection.unreachable(error));
    });
  });
}

/** An upgrade is a GET for kube-apiserver; whether the user may create it is asked by the operator. */
async function refused(
  connection: Connection,
  address: ActorAddress,
  response: IncomingMessage,
): Promise<CommandFailure> {
  const body = await text(response);
  const asked = { verb: "create,get", resource: "actors/exec", group: "subresources.substrate.run" };
  return refusal(connection, address, asked, response.statusCode ?? 0, body);
}

function sendInput(socket: WebSocket, stdin: Readable): void {
  stdin.on("data", (bytes: Buffer) => {
    stdin.pause();
    void sendOn(socket, channels.stdin, bytes).then(() => stdin.resume());
  });
  stdin.once("end", () => {
    void sendOn(socket, channels.close, Buffer.from([channels.stdin]));
  });
  socket.once("close", () => stdin.pause());
}

function cut(key: string): CommandFailure {
  return new CommandFailure(
    "unavailable",
    `the session in actor ${key} was cut: the API server, the operator or the node ended`,
    "its program was killed; run the command again",
  );
}

function failed(key: string, end: ExecEnd): CommandFailure {
  const code = end.details?.causes?.[0]?.reason;
  const seconds = end.details?.retryAfterSeconds;
  const hint = seconds === undefined ? hints[code ?? ""] : `try again in ${seconds} s`;
  return new CommandFailure(
    end.code === 403 ? "forbidden" : "operationFailed",
    `actor ${key}: ${withoutSubject(key, end.message ?? "no message")}${code === undefined ? "" : ` (${code})`}`,
    hint,
  );
}

const hints: Partial<Record<string, string>> = {
  HELD: "its spec.state is Suspended: set it to OnDemand",
  INVALID: "only programs of the actor's own image can be run in it",
};
