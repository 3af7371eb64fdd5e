import { type BucketSettings } from "@substrate/atelet/store/settings.ts";

/** To the process that drives the bucket. */
export interface DriverOrder {
  settings: BucketSettings;
  operation: "put16" | "get8";
  mib: number;
  parallel: number;
}

export interface DriverAnswer {
  ms: number;
  cpuMs: number;
}
