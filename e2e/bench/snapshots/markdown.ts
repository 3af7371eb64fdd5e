/** A table as docs/benchmarks.md has them. */
export interface Table {
  title: string;
  head: readonly string[];
  rows: readonly (readonly string[])[];
}

function tableLine(cells: readonly string[]): string {
  return `| ${cells.join(" | ")} |`;
}

export function markdown({ title, head, rows }: Table): string {
  const lines = [tableLine(head), tableLine(head.map(() => "---")), ...rows.map(tableLine)];
  return `### ${title}\n\n${lines.join("\n")}`;
}
