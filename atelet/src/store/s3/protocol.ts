import { type ErrorCode } from "@substrate/lib/errors.ts";
import { type BucketSettings } from "../settings.ts";
import { type ObjectStore } from "../store.ts";
import { type S3Limits } from "./limits.ts";

/** What the thread of a bucket is started with. */
export interface S3ThreadData {
  settings: BucketSettings;
  limits: S3Limits;
}

export type S3Method = keyof ObjectStore;

/** One call of the store; "open" only looks whether it can be used. */
export interface S3Request {
  id: number;
  method: S3Method | "open";
  args: unknown[];
}

export type S3Answer =
  | { id: number; result: unknown }
  | { id: number; failed: { code: ErrorCode; message: string; stack: string | undefined } };
