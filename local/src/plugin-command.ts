import { mkdirSync } from "node:fs";
import { homedir } from "node:os";
import { join, resolve } from "node:path";
import { callersFolder } from "./config.ts";
import { bundlePlugin } from "./plugin.ts";

const help = `npm run plugin [-- DIR]

Writes kubectl-ate, the plugin that kubectl finds as "kubectl ate" on the PATH, and kubectl_complete-ate for kubectl's own
completion into DIR (default: ~/.local/bin). Each is one file that runs on Node.js 20 or newer of any machine.
`;

const [folder = join(homedir(), ".local/bin"), ...others] = process.argv.slice(2);
if (folder.startsWith("-") || others.length > 0) {
  process.stdout.write(help);
  process.exitCode = folder === "--help" ? 0 : 2;
} else {
  const target = resolve(callersFolder(), folder);
  mkdirSync(target, { recursive: true });
  await bundlePlugin(target);
  process.stdout.write(`${join(target, "kubectl-ate")}\n`);
}
