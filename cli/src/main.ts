import { CommanderError } from "commander";
import { candidates } from "./candidates.ts";
import { CommandFailure, exitCodes } from "./failure.ts";
import { program } from "./program.ts";
import { ProgramExit } from "./program-exit.ts";
import { type Terminal } from "./terminal.ts";

const terminal: Terminal = { stdin: process.stdin, stdout: process.stdout, stderr: process.stderr };

async function main(): Promise<number> {
  try {
    const root = program(terminal);
    const [first, ...line] = process.argv.slice(2);
    if (first === "__complete") terminal.stdout.write(await candidates(root, line));
    else await root.parseAsync();
    return 0;
  } catch (error) {
    // commander has printed its own already
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : exitCodes.usage.code;
    if (error instanceof ProgramExit) return error.code;
    if (!(error instanceof CommandFailure)) {
      terminal.stderr.write(`error: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`);
      return exitCodes.operationFailed.code;
    }
    terminal.stderr.write(`error: ${error.message}\n${error.hint === undefined ? "" : `${error.hint}\n`}`);
    return exitCodes[error.ending].code;
  }
}

process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  // "kubectl ate log x | head": the reader has enough
  process.exit(error.code === "EPIPE" ? 0 : exitCodes.operationFailed.code);
});
void main().then((code) => {
  // open keep-alive connections must not hold the process
  process.exit(code);
});
