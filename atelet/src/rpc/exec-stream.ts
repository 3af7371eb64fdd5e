import { type ServerDuplexStream } from "@grpc/grpc-js";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type ExecRequest, type ExecResponse, type ExecStart } from "@substrate/lib/gen/substrate/atelet/v1/atelet.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { send } from "@substrate/lib/rpc/server.ts";
import { type TerminalSize } from "../exec/descriptors.ts";
import { type ExecSession } from "../exec/session.ts";
import { type ExecActor, type ExecSessions } from "../exec/sessions.ts";

type Call = ServerDuplexStream<ExecRequest, ExecResponse>;

/** Of a client that has opened the stream to say what it wants. */
const startWithinMs = 10_000;
const defaultSize: TerminalSize = { columns: 80, rows: 24 };
const maxArguments = 1024;

/** One exec, from its start message to its exit code. @param find checks the leader and finds the actor. */
export async function serveExec(
  call: Call,
  signal: AbortSignal,
  { sessions, find, log }: { sessions: ExecSessions; find: (start: ExecStart) => ExecActor; log: Logger },
): Promise<void> {
  const start = await firstRequest(call, signal);
  const { command, tty, stdin, size } = start;
  if (command.length === 0 || command[0] === "") throw new SubstrateError("INVALID", "exec needs a command to run");
  if (command.length > maxArguments) {
    throw new SubstrateError("INVALID", `exec takes at most ${maxArguments} arguments, not ${command.length}`);
  }
  const actor = find(start);
  log.info("exec", { actor: actor.name, program: command[0], tty });
  const exitCode = await sessions.run(
    actor,
    { command, tty, stdin, size: size ?? defaultSize },
    {
      begun: (session) => {
        takeInput(call, session, () => {
          sessions.touch(actor.record.actor.uid);
        });
      },
      stdout: (chunk) => send(call, { message: { $case: "stdout", value: chunk } }, signal),
      stderr: (chunk) => send(call, { message: { $case: "stderr", value: chunk } }, signal),
    },
    signal,
  );
  await send(call, { message: { $case: "exitCode", value: exitCode } }, signal);
}

/** The stream stands still afterwards. */
async function firstRequest(call: Call, signal: AbortSignal): Promise<ExecStart> {
  const { promise, resolve, reject } = Promise.withResolvers<ExecRequest>();
  const late = setTimeout(() => {
    reject(new SubstrateError("INVALID", `no start message within ${startWithinMs / 1000} s`));
  }, startWithinMs);
  const gone = (): void => {
    reject(new SubstrateError("INVALID", "the stream ended before its start message"));
  };
  const first = (request: ExecRequest): void => {
    call.pause();
    resolve(request);
  };
  call.once("data", first);
  call.once("end", gone);
  signal.addEventListener("abort", gone, { once: true });
  try {
    const { message } = await promise;
    if (message?.$case !== "start") throw new SubstrateError("INVALID", "the first message of an exec is its start");
    return message.value;
  } finally {
    clearTimeout(late);
    call.off("data", first).off("end", gone);
    signal.removeEventListener("abort", gone);
  }
}

function takeInput(call: Call, session: ExecSession, seen: () => void): void {
  const take = async ({ message }: ExecRequest): Promise<void> => {
    switch (message?.$case) {
      case "stdin":
        await session.write(message.value);
        break;
      case "stdinClosed":
        await session.endInput();
        break;
      case "resize":
        session.resize(message.value);
        break;
      case "start":
      case undefined:
        break;
    }
  };
  call.on("data", (request: ExecRequest) => {
    seen();
    call.pause();
    take(request).then(
      () => call.resume(),
      () => call.destroy(),
    );
  });
  call.resume();
}
