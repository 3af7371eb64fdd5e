import { badRequest } from "./status-error.ts";

export interface ExecQuery {
  command: string[];
  stdin: boolean;
  tty: boolean;
}

const known = new Set(["command", "stdin", "stdout", "stderr", "tty", "container"]);
const help = "allowed are command=… (once per argument), stdin, stdout, stderr and tty, each true or false";

/** As pods/exec has it. Throws INVALID saying what is allowed. */
export function parseExecQuery(query: URLSearchParams): ExecQuery {
  const unknown = [...query.keys()].find((key) => !known.has(key));
  if (unknown !== undefined) throw badRequest(`query parameter "${unknown}" is not known: ${help}`);
  const command = query.getAll("command");
  if (command.length === 0 || command[0] === "") throw badRequest(`no command is given: ${help}`);
  return { command, stdin: flag(query, "stdin"), tty: flag(query, "tty") };
}

function flag(query: URLSearchParams, name: string): boolean {
  const value = query.get(name) ?? "false";
  if (value !== "true" && value !== "false" && value !== "1" && value !== "0") {
    throw badRequest(`${name}="${value}": ${help}`);
  }
  return value === "true" || value === "1";
}
