import { subscribe } from "node:diagnostics_channel";
import { existsSync, rmSync } from "node:fs";

interface UndiciMessage {
  request: { method: string; body: unknown };
}

/** Names the file that arms it. */
const file = new URL(import.meta.url).searchParams.get("file") ?? "";

/** Loaded into an operator by --import: it stops itself just before it writes a grant. */
subscribe("undici:request:create", (message) => {
  const { body, method } = (message as UndiciMessage).request;
  if (method !== "PATCH" || !(body instanceof Uint8Array) || !existsSync(file)) return;
  if (!Buffer.from(body).toString().includes('"assignment"')) return;
  rmSync(file);
  process.kill(process.pid, "SIGSTOP");
});
