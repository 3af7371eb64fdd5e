import files from "node:fs";
import promises from "node:fs/promises";
import { constants } from "node:os";
import { syncBuiltinESMExports } from "node:module";
import { fillDisk } from "./fill.ts";

/**
 * Loaded before the program of every process and thread of a test cluster (`--import`, by faults.ts): makes writes to
 * chosen paths fail as a broken, full or read-only disk does. The product does not know of it. The control file is in
 * the query of this module's URL: `<error code> <regular expression of paths>`.
 */
type Call = (this: unknown, ...args: unknown[]) => unknown;

const control = new URL(import.meta.url).searchParams.get("control");
const changing = ["mkdir", "rename", "link", "writeFile", "appendFile", "open", "copyFile"] as const;
// as they were before they were patched
const { readFileSync, existsSync } = files;

function failureOf(name: string, args: readonly unknown[]): NodeJS.ErrnoException | undefined {
  if (control === null || !existsSync(control)) return undefined;
  if (name === "open" && (args[1] === undefined || args[1] === "r" || args[1] === 0)) return undefined;
  const [code = "", pattern = ""] = readFileSync(control, "utf8").trim().split(" ");
  const path = String(args[0]);
  if (pattern === "" || !new RegExp(pattern).test(path)) return undefined;
  if (code === "FILL") {
    fillDisk(path);
    return undefined;
  }
  const errno = constants.errno[code as keyof typeof constants.errno];
  return Object.assign(new Error(`${code}: a fault of the test, ${name} '${path}'`), {
    code,
    errno,
    syscall: name,
    path,
  });
}

function patch(owner: object, name: string, fail: (error: Error) => unknown): void {
  const functions = owner as Record<string, Call>;
  const original = functions[name];
  if (original === undefined) throw new Error(`there is no function ${name} to let fail`);
  functions[name] = function (this: unknown, ...args) {
    const failure = failureOf(name.replace("Sync", ""), args);
    return failure === undefined ? original.apply(this, args) : fail(failure);
  };
}

for (const name of changing) {
  patch(promises, name, (error) => Promise.reject(error));
  patch(files, `${name}Sync`, (error) => {
    throw error;
  });
}
syncBuiltinESMExports();
