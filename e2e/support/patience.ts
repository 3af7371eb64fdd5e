import { vi } from "vitest";

/** Machines are shared: what a test waits for comes later there. A deadline costs nothing where it does not pass. */
const WITHIN_MS = 20_000;

const { waitFor } = vi;
vi.waitFor = (check, options) =>
  waitFor(check, typeof options === "number" ? options : { timeout: WITHIN_MS, ...options });
