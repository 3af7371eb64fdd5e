import { type Command, type Option } from "commander";

/** Names of objects for a command's argument. */
export type Source = "actors" | "snapshots" | "actors and snapshots" | "tags" | "nothing";

/** What the first, second … argument of each command is, where it is an object's name. */
const argumentsOf: Readonly<Record<string, readonly Source[]>> = {
  get: ["actors"],
  describe: ["actors"],
  suspend: ["actors"],
  resume: ["actors"],
  log: ["actors"],
  exec: ["actors"],
  tag: ["actors"],
  proxy: ["actors"],
  top: ["actors"],
  fork: ["actors and snapshots"],
};

const words: Readonly<Record<string, readonly string[]>> = {
  top: ["actors", "nodes"],
  completion: ["bash", "zsh", "fish", "kubectl"],
};

export interface Completion {
  /** Candidates known from the program alone. */
  candidates: string[];
  /** Whose names are candidates, too. */
  source: Source;
}

/** What may follow `line`, the words behind "kubectl ate"; the last one is being typed, maybe empty. */
export function complete(root: Command, line: readonly string[]): Completion {
  const typed = line.at(-1) ?? "";
  const before = line.slice(0, -1);
  if (before.includes("--")) return { candidates: [], source: "nothing" };
  const positional: string[] = [];
  let command: Command = root;
  let expects: Option | undefined;
  for (const word of before) {
    if (expects !== undefined) {
      expects = undefined;
      continue;
    }
    if (word.startsWith("-")) {
      const option = [...command.options, ...root.options].find((known) => known.long === word || known.short === word);
      expects = option !== undefined && option.required && !word.includes("=") ? option : undefined;
      continue;
    }
    const found = command === root ? root.commands.find((known) => known.name() === word) : undefined;
    if (found !== undefined) command = found;
    else positional.push(word);
  }
  const fitting = (all: readonly string[]): string[] => all.filter((word) => word.startsWith(typed));
  if (expects !== undefined) {
    const source = expects.long === "--from" ? "tags" : "nothing";
    return { candidates: fitting(expects.argChoices ?? []), source };
  }
  if (typed.startsWith("-")) {
    const flags = [...command.options, ...root.options].flatMap(({ long }) => long ?? []);
    return { candidates: fitting([...new Set([...flags, "--help"])].toSorted()), source: "nothing" };
  }
  if (command === root) return { candidates: fitting(root.commands.map((known) => known.name())), source: "nothing" };
  const source = argumentsOf[command.name()]?.[positional.length] ?? "nothing";
  return { candidates: positional.length === 0 ? fitting(words[command.name()] ?? []) : [], source };
}

export const shells = ["bash", "zsh", "fish", "kubectl"] as const;
export type Shell = (typeof shells)[number];

/** What a shell reads once. All ask the plugin itself, so that they never grow old. */
export const scripts: Readonly<Record<Shell, string>> = {
  bash: `# bash completion of kubectl-ate; for "kubectl ate" install the file of "kubectl ate completion kubectl", too
_kubectl_ate() {
  local words=("\${COMP_WORDS[@]:1:COMP_CWORD}")
  local IFS=$'\\n'
  COMPREPLY=($(kubectl-ate __complete "\${words[@]}" 2>/dev/null | grep -v '^:'))
}
complete -o default -F _kubectl_ate kubectl-ate
`,
  zsh: `#compdef kubectl-ate
# zsh completion of kubectl-ate: source it, or put it on the fpath as _kubectl-ate; for "kubectl ate" install the file of "kubectl ate completion kubectl", too
_kubectl-ate() {
  local -a candidates
  candidates=(\${(f)"$(kubectl-ate __complete "\${words[@]:1:$((CURRENT-1))}" 2>/dev/null | grep -v '^:')"})
  compadd -a candidates
}
# from the fpath this file is the function itself
if [ "\$funcstack[1]" = "_kubectl-ate" ]; then
  _kubectl-ate
else
  compdef _kubectl-ate kubectl-ate
fi
`,
  fish: `# fish completion of kubectl-ate; for "kubectl ate" install the file of "kubectl ate completion kubectl", too
function __kubectl_ate_complete
  set -l words (commandline -opc) (commandline -ct)
  kubectl-ate __complete $words[2..-1] 2>/dev/null | string match -v -r '^:'
end
complete -c kubectl-ate -f -a '(__kubectl_ate_complete)'
`,
  kubectl: `#!/bin/sh
# put this on the PATH as kubectl_complete-ate, executable: kubectl's own completion asks it about "kubectl ate"
exec kubectl-ate __complete "$@"
`,
};
