/** The end of a command's help. */
export function examples(...lines: readonly [command: string, meaning: string][]): string {
  return `\nExamples:\n${lines.map(([command, meaning]) => `  # ${meaning}\n  ${command}\n`).join("\n")}`;
}
