import { z } from "zod";

const exit = z.object({
  pid: z.number(),
  startTicks: z.number(),
  status: z.union([z.object({ code: z.number() }), z.object({ signal: z.number() })]),
});

/** What passes over the IPC channel between supervisor and atelet. */
const toAtelet = z.discriminatedUnion("type", [
  z.object({ type: z.literal("session"), session: z.string(), bootId: z.string() }),
  z.object({ type: z.literal("ping"), count: z.number() }),
  // Orphans of earlier commands of the atelet, sandboxes among them, that were reaped.
  z.object({ type: z.literal("exits"), exits: z.array(exit) }),
]);

const toSupervisor = z.discriminatedUnion("type", [
  z.object({ type: z.literal("pong"), count: z.number() }),
  z.object({ type: z.literal("announce"), runtime: z.string() }),
]);

export type ToAtelet = z.infer<typeof toAtelet>;
export type ToSupervisor = z.infer<typeof toSupervisor>;

/** Undefined for what is not one of ours (Node's own or a stray one). */
export function readToAtelet(message: unknown): ToAtelet | undefined {
  return toAtelet.safeParse(message).data;
}

export function readToSupervisor(message: unknown): ToSupervisor | undefined {
  return toSupervisor.safeParse(message).data;
}
