import { randomUUID } from "node:crypto";
import { type ClientDuplexStream } from "@grpc/grpc-js";
import { type Actor } from "@substrate/crds/index.ts";
import { channels, endOf, type ExecEnd, receiveFrom, sendOn } from "@substrate/lib/exec-channels.ts";
import { type ExecRequest, type ExecResponse } from "@substrate/lib/gen/substrate/atelet/v1/atelet.ts";
import { keyOf } from "@substrate/lib/kube/client.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { fromServiceError, isServiceError } from "@substrate/lib/rpc/errors.ts";
import { type WebSocket } from "ws";
import { z } from "zod";
import { type Atelets } from "../atelets.ts";
import { type Leadership } from "../leader.ts";
import { type Waker } from "../wake.ts";
import { type AccessReviews } from "./access.ts";
import { type ExecQuery, parseExecQuery } from "./exec-query.ts";
import { statusOf } from "./status-error.ts";
import { type UpgradeHandler } from "./upgrades.ts";

export interface ExecOptions {
  atelets: Atelets;
  waker: Waker;
  access: AccessReviews;
  leadership: Leadership;
  log: Logger;
}

const pingEveryMs = 10_000;
/** A client that has not answered three pings is gone. */
const silentMs = 35_000;

const sizeSchema = z.object({ Width: z.int().min(0).max(65_535), Height: z.int().min(0).max(65_535) });

type Stream = ClientDuplexStream<ExecRequest, ExecResponse>;

/** GET actors/NAME/exec as a WebSocket: wakes the actor, runs a program in it, passes its streams on. */
export function execHandler(options: ExecOptions): UpgradeHandler {
  return async ({ actor, query, caller, accept }) => {
    const { access, leadership, log } = options;
    const asked = parseExecQuery(query);
    const { name, namespace = "" } = actor.metadata;
    // an upgrade is a GET, for which kube-apiserver has asked only for verb get
    const right = { group: "subresources.substrate.run", resource: "actors", subresource: "exec", verb: "create" };
    await access.require(caller, { ...right, namespace, name });
    leadership.proof();
    const socket = await accept();
    log.info("exec", { actor: keyOf(actor), user: caller.user, program: asked.command[0] });
    const stopWatching = watch(socket);
    try {
      await finish(socket, await converse(options, actor, asked, socket));
    } catch (error) {
      await finish(socket, statusOf(error, name));
    } finally {
      stopWatching();
    }
  };
}

/** @returns how it ended. Throws what the wake or the node refused with. */
async function converse(
  { atelets, waker }: ExecOptions,
  actor: Actor,
  { command, stdin, tty }: ExecQuery,
  socket: WebSocket,
): Promise<ExecEnd> {
  const uid = actor.metadata.uid ?? "";
  // what a client sends meanwhile waits in the network
  socket.pause();
  const { nodeName } = await waker.wake(uid, keyOf(actor), randomUUID());
  const stream = atelets.require(nodeName).exec({ actorUid: uid, command, tty, stdin });
  const cancel = (): void => {
    stream.cancel();
  };
  socket.once("close", cancel);
  if (socket.readyState > 1) cancel();
  receiveFrom(socket, (channel, bytes) => input(stream, channel, bytes));
  socket.resume();
  let exitCode: number | undefined;
  try {
    for await (const { message } of stream as AsyncIterable<ExecResponse>) {
      if (message?.$case === "exitCode") exitCode = message.value;
      else if (message !== undefined) await sendOn(socket, channels[message.$case], message.value);
    }
  } catch (error) {
    throw isServiceError(error) ? fromServiceError(error) : error;
  }
  if (exitCode === undefined) return { status: "Failure", message: "the node ended the session without an exit code" };
  return endOf(exitCode);
}

/** Undefined when the node has taken it; else resolves when it takes more. */
function input(stream: Stream, channel: number, bytes: Buffer): Promise<void> | undefined {
  const message = inputMessage(channel, bytes);
  if (message === undefined || stream.destroyed || stream.writableEnded || stream.write({ message })) return undefined;
  return new Promise((resolve) => {
    const go = (): void => {
      stream.off("drain", go).off("close", go);
      resolve();
    };
    stream.once("drain", go).once("close", go);
  });
}

function inputMessage(channel: number, bytes: Buffer): ExecRequest["message"] {
  switch (channel) {
    case channels.stdin:
      return { $case: "stdin", value: bytes };
    case channels.close:
      return bytes[0] === channels.stdin ? { $case: "stdinClosed", value: true } : undefined;
    case channels.resize: {
      const size = sizeSchema.safeParse(parse(bytes));
      if (!size.success) return undefined;
      return { $case: "resize", value: { columns: size.data.Width, rows: size.data.Height } };
    }
    default:
      return undefined;
  }
}

function parse(bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString()) as unknown;
  } catch (error) {
    // a size that cannot be read is left as it was
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

async function finish(socket: WebSocket, end: ExecEnd): Promise<void> {
  await sendOn(socket, channels.status, Buffer.from(JSON.stringify({ metadata: {}, ...end })));
  socket.close(1000);
}

/** Ends a connection whose client does not answer any more. */
function watch(socket: WebSocket): () => void {
  let heardMs = performance.now();
  const heard = (): void => {
    heardMs = performance.now();
  };
  socket.on("pong", heard).on("message", heard);
  const timer = setInterval(() => {
    if (performance.now() - heardMs > silentMs) socket.terminate();
    else if (socket.readyState === 1) socket.ping();
  }, pingEveryMs);
  return () => {
    clearInterval(timer);
  };
}
