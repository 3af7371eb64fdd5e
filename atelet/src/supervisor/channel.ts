import { Exits } from "./exits.ts";
import { type ToSupervisor, readToAtelet } from "./messages.ts";

/** The supervisor sends the session as soon as the atelet is started. */
const firstMessageMs = 10_000;

/** The atelet's end of the channel to its supervisor. */
export interface SupervisorChannel {
  /** Resolves when the first session is known; rejects if the supervisor does not tell it within 10 s. */
  readonly ready: Promise<void>;
  /** The current session; undefined before `ready`. Grants that name another one are void. */
  session(): string | undefined;
  /** New at each start of the supervisor; empty before `ready`. */
  readonly bootId: string;
  /** How processes of sandboxes ended, those before this atelet's start too. */
  readonly exits: Exits;
  /** Called when another session has begun; not for the first one. */
  onSession(callback: (session: string) => void): void;
  /** Tells which runtime build this node restores with, for the Lease. */
  announce(runtime: string): void;
  /** Ends the channel without ending this process. */
  close(): void;
}

/**
 * Answers the supervisor's pings from now on: call it first thing. When the supervisor is gone, so is the right to run
 * anything: the process then sends itself SIGTERM. Throws if this process was not started by a supervisor.
 */
export function connectSupervisor(): SupervisorChannel {
  if (process.send === undefined) {
    throw new Error("the atelet is started by its supervisor (atelet/src/supervisor/main.ts), not by itself");
  }
  const callbacks: ((session: string) => void)[] = [];
  const { promise: ready, resolve, reject } = Promise.withResolvers<undefined>();
  const deadline = setTimeout(() => {
    reject(new Error(`the supervisor has not told the session within ${firstMessageMs} ms`));
  }, firstMessageMs);
  const exits = new Exits();
  let session: string | undefined;
  let bootId = "";

  function send(message: ToSupervisor): void {
    if (process.connected) process.send?.(message);
  }

  function onMessage(raw: unknown): void {
    const message = readToAtelet(raw);
    if (message?.type === "ping") send({ type: "pong", count: message.count });
    if (message?.type === "exits") for (const exit of message.exits) exits.add(exit);
    if (message?.type !== "session") return;
    const isChange = session !== undefined && session !== message.session;
    ({ session, bootId } = message);
    clearTimeout(deadline);
    resolve(undefined);
    if (isChange) for (const callback of callbacks) callback(session);
  }

  function onDisconnect(): void {
    process.kill(process.pid, "SIGTERM");
  }

  process.on("message", onMessage);
  process.on("disconnect", onDisconnect);
  return {
    ready,
    session: () => session,
    exits,
    get bootId() {
      return bootId;
    },
    onSession(callback) {
      callbacks.push(callback);
    },
    announce(runtime) {
      send({ type: "announce", runtime });
    },
    close() {
      clearTimeout(deadline);
      process.off("message", onMessage);
      process.off("disconnect", onDisconnect);
      if (process.connected) process.disconnect();
    },
  };
}
