import { type Readable } from "node:stream";

/** The JSON documents of a watch, one a line. */
export async function* jsonLines(stream: Readable): AsyncGenerator {
  let rest = "";
  stream.setEncoding("utf8");
  for await (const chunk of stream as AsyncIterable<string>) {
    const lines = (rest + chunk).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) if (line !== "") yield JSON.parse(line) as unknown;
  }
}
