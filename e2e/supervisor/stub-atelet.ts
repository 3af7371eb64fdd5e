import { spawn } from "node:child_process";
import { once } from "node:events";
import { renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { connectSupervisor } from "@substrate/atelet/supervisor/channel.ts";

// Ignored, so that the end of the grace time shows; from before anybody knows of it.
process.on("SIGTERM", () => undefined);
/** Starts one orphan, as runsc leaves a sandbox behind, and writes what it knows into the node folder. */
const stateDir = process.argv[2] ?? "";
const supervisor = connectSupervisor();
await supervisor.ready;
supervisor.announce("stub/1");
const shell = spawn("sh", ["-c", "sleep 300 >&- 2>&- & echo $!"], { stdio: ["ignore", "pipe", "inherit"] });
const [orphan] = (await once(shell.stdout, "data")) as [Buffer];

function tell(): void {
  const known = { pid: process.pid, orphan: Number(orphan), session: supervisor.session(), bootId: supervisor.bootId };
  writeFileSync(join(stateDir, "stub.tmp"), JSON.stringify(known));
  renameSync(join(stateDir, "stub.tmp"), join(stateDir, "stub.json"));
}
tell();
supervisor.onSession(tell);
