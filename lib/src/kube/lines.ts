import { StringDecoder } from "node:string_decoder";

/** Each line of a stream as parsed JSON; an unfinished last line (a cut connection) is left out. */
export async function* jsonLines(stream: AsyncIterable<Buffer>): AsyncGenerator {
  const decoder = new StringDecoder("utf8");
  // pieces of the line that is not finished yet: a large object comes in many chunks
  let pieces: string[] = [];
  for await (const chunk of stream) {
    const lines = decoder.write(chunk).split("\n");
    for (const line of lines.slice(0, -1)) {
      pieces.push(line);
      const whole = pieces.join("");
      pieces = [];
      if (whole.trim() !== "") yield JSON.parse(whole);
    }
    pieces.push(lines.at(-1) ?? "");
  }
}
