import { readFile } from "node:fs/promises";

export interface Mounted {
  /** Absolute. */
  target: string;
  /** Layers as they were named when it was mounted, newest first, the upper one included. */
  layers: string[];
}

/** What is mounted in a folder, the deepest first, by this process's mount table. */
export async function mountsBelow(dir: string): Promise<Mounted[]> {
  return parseMountinfo(await readFile("/proc/self/mountinfo", "utf8"), dir);
}

export function parseMountinfo(text: string, dir: string): Mounted[] {
  const found: Mounted[] = [];
  for (const line of text.split("\n")) {
    const fields = line.split(" ");
    const target = unescape(fields[4] ?? "");
    if (!target.startsWith(`${dir}/`)) continue;
    const options = new Map((fields.at(-1) ?? "").split(",").map((option) => cut(option, "=")));
    const upper = options.get("upperdir");
    // Newer kernels show each layer as an option of its own.
    const lowers = options.get("lowerdir")?.split(":") ?? [];
    found.push({ target, layers: [...(upper === undefined ? [] : [upper]), ...lowers].map(unescape) });
  }
  return found.sort((a, b) => b.target.length - a.target.length);
}

function cut(text: string, separator: string): [string, string] {
  const at = text.indexOf(separator);
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
}

/** The kernel writes spaces and the like as octal numbers. */
function unescape(text: string): string {
  return text.replaceAll(/\\(\d{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)));
}
