import { z } from "zod";
import { type From } from "../choices.ts";
import { type SuspendOptions } from "../suspender.ts";
import { badRequest } from "./status-error.ts";

/** apiVersion and kind are let pass, because clients that write objects always send them. */
const suspendBody = z.strictObject({
  apiVersion: z.string().optional(),
  kind: z.string().optional(),
  mode: z.enum(["Async", "Sync"]).exactOptional(),
  force: z.boolean().default(false),
  fidelity: z.enum(["Memory", "Rootfs", "Data"]).exactOptional(),
});
const resumeBody = z
  .strictObject({
    apiVersion: z.string().optional(),
    kind: z.string().optional(),
    from: z.union([z.int().min(1), z.string().min(1).max(253)]).exactOptional(),
    boot: z.boolean().exactOptional(),
  })
  .refine(({ boot, from }) => boot !== true || from === undefined, "from and boot exclude each other");

const suspendHelp =
  'allowed are {"mode": "Async" | "Sync", "force": true | false, "fidelity": "Memory" | "Rootfs" | "Data"}, all optional, or no body';
const resumeHelp =
  'allowed are {"from": 3} for a generation, {"from": "name"} for the Snapshot of a tag, {"boot": true} for a cold start, or no body';

/** Throws INVALID saying what is allowed. */
export function parseSuspendBody(body: string): SuspendOptions {
  const { fidelity, force, mode } = parse(suspendBody, body, suspendHelp);
  return { force, ...(mode === undefined ? {} : { mode }), ...(fidelity === undefined ? {} : { fidelity }) };
}

/** Throws INVALID saying what is allowed. */
export function parseResumeBody(body: string): From {
  const { boot, from } = parse(resumeBody, body, resumeHelp);
  return { boot, from };
}

function parse<T>(schema: z.ZodType<T>, body: string, help: string): T {
  let value: unknown = {};
  if (body.trim() !== "") {
    try {
      value = JSON.parse(body);
    } catch (error) {
      throw badRequest(`the body is not JSON (${error instanceof Error ? error.message : String(error)}): ${help}`);
    }
  }
  const checked = schema.safeParse(value);
  if (checked.success) return checked.data;
  const problems = checked.error.issues.map(
    ({ path, message }) => `${path.length === 0 ? "" : `${path.join(".")}: `}${message}`,
  );
  throw badRequest(`${problems.join("; ")}: ${help}`);
}
