import { z } from "zod";
import { type SuspendOptions } from "../suspender.ts";
import { badRequest } from "./status-error.ts";

/** apiVersion and kind are let pass, because clients that write objects always send them. */
const suspendBody = z.strictObject({
  apiVersion: z.string().optional(),
  kind: z.string().optional(),
  mode: z.enum(["Async", "Sync"]).default("Async"),
  force: z.boolean().default(false),
});
const resumeBody = z.strictObject({ apiVersion: z.string().optional(), kind: z.string().optional() });

const suspendHelp = 'allowed are {"mode": "Async" | "Sync", "force": true | false}, both optional, or no body';
const resumeHelp = "a resume takes no fields; send no body";

/** Throws INVALID saying what is allowed. */
export function parseSuspendBody(body: string): SuspendOptions {
  const { mode, force } = parse(suspendBody, body, suspendHelp);
  return { mode, force };
}

export function checkResumeBody(body: string): void {
  parse(resumeBody, body, resumeHelp);
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
